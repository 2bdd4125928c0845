// A library that is loaded into a server (LD_PRELOAD). Each connection that it accepts sends no faster than an access link, in
// packets of Ethernet's size, as viewers on the Internet receive them. Over the loopback interface a whole segment arrives at
// once, in packets of 64 KiB.
//
// Environment: ACCESS_LINK, the rate of each connection in bytes a second. The kernel keeps to it (SO_MAX_PACING_RATE).

#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

static void must(int result, const char *what) {
    if (result < 0) {
        perror(what);
        exit(1);
    }
}

int listen(int fd, int backlog) {
    int (*next)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "listen");
    int bytes = 1448;
    must(setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &bytes, sizeof bytes), "TCP_MAXSEG");
    return next(fd, backlog);
}

int accept4(int fd, struct sockaddr *from, socklen_t *length, int flags) {
    int (*next)(int, struct sockaddr *, socklen_t *, int) =
        (int (*)(int, struct sockaddr *, socklen_t *, int))dlsym(RTLD_NEXT, "accept4");
    int accepted = next(fd, from, length, flags);
    unsigned rate = strtoul(getenv("ACCESS_LINK"), NULL, 10);
    if (accepted >= 0) must(setsockopt(accepted, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate), "SO_MAX_PACING_RATE");
    return accepted;
}
