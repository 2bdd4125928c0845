/* Sends UDP packets at a steady rate, in bursts every 100 us.
 *
 *   traffic HOST PORT PACKETS_A_SECOND BYTES SECONDS
 *
 * BYTES is the size of the whole IP packet. The kernel gets each burst in one call and splits it
 * (UDP_SEGMENT), so that this program keeps up. If it is late by more than two bursts, it skips the
 * bursts that were due, so that no burst is measured that this program caused. It prints the number of
 * packets sent. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

enum { HEADERS = 28, BURST_NS = 100000, MOST = 50 };

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int count, char **words) {
    if (count < 6)
        return 2;
    static unsigned char bytes[1 << 16];
    double rate = atof(words[3]), seconds = atof(words[5]);
    int size = atoi(words[4]) - HEADERS, room = 4 << 20;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(words[2]))};
    inet_pton(AF_INET, words[1], &to.sin_addr);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) < 0 ||
        setsockopt(fd, SOL_UDP, UDP_SEGMENT, &size, sizeof size) < 0) {
        perror("socket");
        return 1;
    }
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
    prctl(PR_SET_TIMERSLACK, 1UL);
    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1});
    int64_t begin = now(), end = begin + (int64_t)(seconds * 1e9);
    double owed = 0, each = rate * BURST_NS / 1e9;
    unsigned long sent = 0;
    for (int64_t at = begin; at < end; at += BURST_NS) {
        struct timespec time = {at / 1000000000, at % 1000000000};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
        if (now() - at > 2 * BURST_NS)
            at = now();
        for (owed += each; owed >= 1;) {
            int packets = owed < MOST ? (int)owed : MOST;
            if (send(fd, bytes, (size_t)packets * size, 0) > 0)
                sent += packets;
            owed -= packets;
        }
    }
    printf("%lu\n", sent);
    return 0;
}
