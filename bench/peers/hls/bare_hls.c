// The least that a player of live HLS does: each connection requests every segment when it is due, and reads what arrives.
//
// Usage: bare_hls PORT CLIENTS SECONDS SEGMENT_MS
//
// It reads no playlist but the first, to learn the number of the newest segment, and ignores what it reads.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static char buffer[256 * 1024];

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int connected(int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void request(int fd, const char *path) {
    char text[256];
    int length = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", path);
    if (write(fd, text, length) != length) die("write");
}

// Number of the newest segment in the playlist.
static long newest(int port) {
    int fd = connected(port);
    request(fd, "/live/index.m3u8");
    size_t length = 0;
    for (;;) {
        ssize_t count = read(fd, buffer + length, sizeof buffer - 1 - length);
        if (count <= 0) die("the playlist");
        length += count;
        buffer[length] = 0;
        char *body = strstr(buffer, "\r\n\r\n"), *stated = strstr(buffer, "Content-Length: ");
        if (body && stated && buffer + length - (body + 4) >= atol(stated + 16)) break;
    }
    close(fd);
    char *last = NULL;
    for (char *at = buffer; (at = strstr(at, "\n0/")); at += 3) last = at + 3;
    if (!last) die("no segment in the playlist");
    return atol(last);
}

int main(int count, char **words) {
    if (count != 5) return fprintf(stderr, "usage: bare_hls PORT CLIENTS SECONDS SEGMENT_MS\n"), 2;
    int port = atoi(words[1]), clients = atoi(words[2]);
    double seconds = atof(words[3]), interval = atof(words[4]) / 1000;
    int poll = epoll_create1(0), *sockets = calloc(clients, sizeof *sockets);
    for (int i = 0; i < clients; i++) {
        sockets[i] = connected(port);
        struct epoll_event event = {.events = EPOLLIN, .data.fd = sockets[i]};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, sockets[i], &event) < 0) die("epoll_ctl");
    }
    long segment = newest(port);
    puts("ready");
    fflush(stdout);
    // As players that began one after the other, each has a time of its own within the interval.
    double begin = now(), end = begin + seconds;
    unsigned long long bytes = 0, asked = 0;
    while (now() < end) {
        double due = begin + asked * interval / clients;
        while (due <= now()) {
            char path[64];
            snprintf(path, sizeof path, "/live/0/%lld.ts", segment + asked / clients);
            request(sockets[asked % clients], path);
            due = begin + ++asked * interval / clients;
        }
        struct epoll_event events[256];
        double wait = (due < end ? due : end) - now();
        int ready = epoll_wait(poll, events, 256, wait > 0 ? (int)(wait * 1000) + 1 : 0);
        for (int i = 0; i < ready; i++) {
            ssize_t got = read(events[i].data.fd, buffer, sizeof buffer);
            if (got <= 0) die("read");
            bytes += got;
        }
    }
    printf("%llu bytes\n", bytes);
    return 0;
}
