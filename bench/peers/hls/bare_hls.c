// The least that a player of live HLS does: it requests the playlist when a segment is due and, once that has arrived, the
// segment, on a connection of its own each. It ignores what it reads.
//
// Usage: bare_hls PORT CLIENTS SECONDS SEGMENT_MS [segments]
//
// With `segments`, it requests no playlist but the first, to learn the number of the newest segment.

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

// A player: its two connections, and the segment that is next.
struct player {
    int playlists, media;
    long segment;
};

static void request_segment(struct player *player) {
    char path[64];
    snprintf(path, sizeof path, "/live/0/%ld.ts", player->segment++);
    request(player->media, path);
}

int main(int count, char **words) {
    int with_playlists = count == 5;
    if (count != 5 && (count != 6 || strcmp(words[5], "segments")))
        return fprintf(stderr, "usage: bare_hls PORT CLIENTS SECONDS SEGMENT_MS [segments]\n"), 2;
    int port = atoi(words[1]), clients = atoi(words[2]);
    double seconds = atof(words[3]), interval = atof(words[4]) / 1000;
    int poll = epoll_create1(0);
    struct player *players = calloc(clients, sizeof *players);
    long segment = newest(port);
    for (int i = 0; i < clients; i++) {
        players[i] = (struct player){.playlists = -1, .media = connected(port), .segment = segment};
        if (with_playlists) players[i].playlists = connected(port);
        for (int of_playlists = 0; of_playlists <= with_playlists; of_playlists++) {
            struct epoll_event event = {.events = EPOLLIN, .data.u64 = 2 * i + of_playlists};
            int fd = of_playlists ? players[i].playlists : players[i].media;
            if (epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event) < 0) die("epoll_ctl");
        }
    }
    puts("ready");
    fflush(stdout);
    // As players that began one after the other, each has a time of its own within the interval.
    double begin = now(), end = begin + seconds;
    unsigned long long bytes = 0, asked = 0;
    while (now() < end) {
        double due = begin + asked * interval / clients;
        while (due <= now()) {
            struct player *player = &players[asked % clients];
            if (with_playlists) request(player->playlists, "/live/index.m3u8");
            else request_segment(player);
            due = begin + ++asked * interval / clients;
        }
        struct epoll_event events[256];
        double wait = (due < end ? due : end) - now();
        int ready = epoll_wait(poll, events, 256, wait > 0 ? (int)(wait * 1000) + 1 : 0);
        for (int i = 0; i < ready; i++) {
            struct player *player = &players[events[i].data.u64 / 2];
            int of_playlists = events[i].data.u64 % 2;
            // A playlist is far smaller than what is read at once.
            ssize_t got = read(of_playlists ? player->playlists : player->media, buffer, sizeof buffer);
            if (got <= 0) die("read");
            bytes += got;
            if (of_playlists) request_segment(player);
        }
    }
    printf("%llu bytes\n", bytes);
    return 0;
}
