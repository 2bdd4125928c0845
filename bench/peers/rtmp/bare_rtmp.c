/* Minimal RTMP clients: they perform the handshake, send their requests, and then read without inspecting
 * anything, or write messages of the same lengths at the same times as streamgauge. One thread, epoll, no
 * checks.
 *
 *   bare_rtmp play PORT CLIENTS SECONDS
 *   bare_rtmp publish PORT CLIENTS SECONDS VIDEO_KBPS     25 pictures a second, and 192 kb/s of sound
 *
 * Prints `begun`, then the number of bytes read or written. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PACKET = 1536, CHUNK = 4096 };

static unsigned char out[1 << 20], in[256 * 1024];
static size_t length;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void put(const void *bytes, size_t count) {
    memcpy(out + length, bytes, count);
    length += count;
}

static void text(const char *text) {
    unsigned char head[3] = {2, 0, (unsigned char)strlen(text)};
    put(head, 3);
    put(text, strlen(text));
}

static void number(double value) {
    unsigned char bytes[9] = {0};
    uint64_t bits;
    memcpy(&bits, &value, 8);
    for (int at = 8; at > 0; at--, bits >>= 8)
        bytes[at] = (unsigned char)bits;
    put(bytes, 9);
}

static void null(void) { put("\5", 1); }

/* Inserts a header before the bytes put since `at`. Commands are shorter than 128 bytes. */
static void command(size_t at, int stream) {
    size_t payload = length - at;
    unsigned char head[12] = {3, 0, 0, 0, 0, 0, (unsigned char)payload, 20, (unsigned char)stream, 0, 0, 0};
    memmove(out + at + 12, out + at, payload);
    memcpy(out + at, head, 12);
    length += 12;
}

static size_t message(int chunk_stream, int kind, uint32_t time, size_t payload) {
    unsigned char head[12] = {(unsigned char)chunk_stream, time >> 16, time >> 8, time, payload >> 16, payload >> 8, payload,
                              (unsigned char)kind, 1, 0, 0, 0};
    length = 0;
    put(head, 12);
    for (size_t left = payload; left > 0;) {
        size_t now = left < CHUNK ? left : CHUNK;
        memset(out + length, 7, now);
        if (left == payload)
            memcpy(out + length, kind == 9 ? "\x27\1\0\0\0" : "\xaf\1", kind == 9 ? 5 : 2);
        length += now;
        left -= now;
        if (left > 0)
            out[length++] = (unsigned char)(0xc0 | chunk_stream);
    }
    return length;
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void all(int fd, const void *bytes, size_t count) {
    if (write(fd, bytes, count) != (ssize_t)count)
        die("write");
}

static int join(int port, int number_of, int publish) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
        die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    memset(in, 0, PACKET + 1);
    in[0] = 3;
    all(fd, in, PACKET + 1);
    for (size_t have = 0; have < 2 * PACKET + 1;) {
        ssize_t count = read(fd, in + have, 2 * PACKET + 1 - have);
        if (count <= 0)
            die("handshake");
        have += count;
    }
    all(fd, in + 1, PACKET);
    length = 0;
    size_t at = 0;
    text("connect"), number(1), put("\3\0\3app", 6), text("live"), put("\0\0\11", 3), command(at, 0);
    if (publish) {
        unsigned char chunk_size[16] = {2, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0, CHUNK >> 8, 0};
        put(chunk_size, 16);
    }
    at = length, text("createStream"), number(2), null(), command(at, 0);
    char name[32];
    snprintf(name, sizeof name, "bare%d", number_of);
    at = length, text(publish ? "publish" : "play"), number(3), null(), text(name);
    publish ? text("live") : number(-2000);
    command(at, 1);
    all(fd, out, length);
    return fd;
}

int main(int count, char **words) {
    if (count < 5)
        return 2;
    int publish = words[1][0] == 'p' && words[1][1] == 'u', port = atoi(words[2]), clients = atoi(words[3]);
    double seconds = atof(words[4]);
    size_t picture = publish && count > 5 ? atol(words[5]) * 1000 / 8 / 25 : 0;
    int *fds = calloc(clients, sizeof *fds), poll = epoll_create1(0);
    prctl(PR_SET_TIMERSLACK, 1UL);
    for (int client = 0; client < clients; client++) {
        fds[client] = join(port, client, publish);
        fcntl(fds[client], F_SETFL, O_NONBLOCK);
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[client]};
        epoll_ctl(poll, EPOLL_CTL_ADD, fds[client], &event);
    }
    puts("begun");
    fflush(stdout);
    unsigned long long bytes = 0;
    int64_t begin = now(), end = begin + (int64_t)(seconds * 1e9);
    /* Pictures every 40 ms, sound every 21.333 ms; clients are staggered evenly. */
    int64_t video = 40000000, audio = 21333333;
    uint64_t next_video = 0, next_audio = 0;
    for (int64_t at = begin; at < end; at = now()) {
        struct epoll_event events[256];
        int64_t wait = end - at;
        if (publish) {
            int64_t one = begin + (int64_t)(next_video / clients) * video + video * (int64_t)(next_video % clients) / clients;
            int64_t other = begin + (int64_t)(next_audio / clients) * audio + audio * (int64_t)(next_audio % clients) / clients;
            int64_t due = one < other ? one : other;
            if (due <= at) {
                int is_video = one <= other;
                uint64_t number_of = is_video ? next_video++ : next_audio++;
                uint32_t time = (uint32_t)((due - begin) / 1000000);
                size_t whole = is_video ? message(6, 9, time, picture) : message(4, 8, time, 512);
                ssize_t written = write(fds[number_of % clients], out, whole);
                if (written != (ssize_t)whole)
                    die("not taken");
                bytes += whole;
                continue;
            }
            wait = due - at;
            /* Like streamgauge: messages due within 250 us leave together. */
            if (wait < 250000)
                wait = 250000;
        }
        struct timespec timeout = {wait / 1000000000, wait % 1000000000};
        int ready = epoll_pwait2(poll, events, 256, &timeout, NULL);
        for (int each = 0; each < ready; each++) {
            ssize_t got = read(events[each].data.fd, in, sizeof in);
            if (got == 0 || (got < 0 && errno != EAGAIN))
                die("read");
            bytes += got > 0 && !publish ? got : 0;
        }
    }
    printf("%llu\n", bytes);
    return 0;
}
