/* The minimal cost of messages over TCP: open connections, and a loop of send() over them.
 *
 *   bare_send HOST PORT[,PORT...] CONNECTIONS BYTES SLEEP_MS SECONDS
 *
 * It sends one message on each connection in turn, sleeps, and repeats, like the client of the
 * experiment. It prints one line of JSON: messages, refused messages, seconds, and CPU time of the
 * loop alone, in nanoseconds. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static long long now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

int main(int count, char **words) {
    if (count != 7) {
        fprintf(stderr, "usage: bare_send HOST PORT[,PORT...] CONNECTIONS BYTES SLEEP_MS SECONDS\n");
        return 2;
    }
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);

    int ports[64], port_count = 0;
    for (char *word = strtok(words[2], ","); word && port_count < 64; word = strtok(NULL, ","))
        ports[port_count++] = atoi(word);
    int connections = atoi(words[3]), bytes = atoi(words[4]);
    long long sleep_ns = (long long)(atof(words[5]) * 1e6), length = (long long)(atof(words[6]) * 1e9);
    int *sockets = malloc(sizeof(int) * connections);
    char *message = malloc(bytes);
    memset(message, 'a', bytes);

    for (int i = 0; i < connections; i++) {
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(ports[i % port_count])};
        int one = 1;
        inet_pton(AF_INET, words[1], &to.sin_addr);
        sockets[i] = socket(AF_INET, SOCK_STREAM, 0);
        if (sockets[i] < 0 || connect(sockets[i], (struct sockaddr *)&to, sizeof to) < 0) fail("connect");
        setsockopt(sockets[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }

    long long began = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID), messages = 0, refused = 0;
    struct timespec pause = {sleep_ns / 1000000000LL, sleep_ns % 1000000000LL};
    while (now(CLOCK_MONOTONIC) - began < length) {
        for (int i = 0; i < connections; i++) {
            if (send(sockets[i], message, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) == bytes)
                messages++;
            else
                refused++;
        }
        if (sleep_ns) nanosleep(&pause, NULL);
    }
    cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    double seconds = (now(CLOCK_MONOTONIC) - began) / 1e9;
    printf("{\"messages\": %lld, \"refused\": %lld, \"seconds\": %.3f, \"cpu_nanos\": %lld}\n", messages, refused, seconds, cpu);
    return 0;
}
