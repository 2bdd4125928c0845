/* Minimal SRT callers: they perform the handshake, and then take packets without inspecting them, or send packets of the same
 * length at the same times as streamgauge. One thread; no encryption, no requests for retransmission, no checks.
 *
 *   bare_srt receive PORT CLIENTS SECONDS     reads all sockets every 5 ms, and acknowledges on each every 10 ms
 *   bare_srt send PORT CLIENTS SECONDS KBPS   1316 bytes a packet, evenly; reads acknowledgements every 5 ms and answers them
 *   bare_srt deaf PORT CLIENTS SECONDS KBPS   the same, but reads nothing
 *
 * Prints `begun`, and at the end how many packets it received or sent. Layouts: draft-sharabayko-srt-01, 3. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEADER = 16, PAYLOAD = 1316, BATCH = 32, ROOM = 1500, FIRST = 1000 };
enum { HANDSHAKE = 0, ACK = 2, SHUTDOWN = 5, ACKACK = 6 };
static const int64_t SWEEP = 5000000;

struct client {
    int fd;
    uint32_t peer, last, acknowledged, acks, next;
};

static unsigned char rooms[BATCH][ROOM];
static struct iovec vectors[BATCH];
static struct mmsghdr messages[BATCH];
static int64_t epoch;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void sleep_until(int64_t at) {
    struct timespec time = {at / 1000000000, at % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

static uint32_t stamp(void) { return (uint32_t)((now() - epoch) / 1000); }

static void put(unsigned char *to, uint32_t word) {
    word = htonl(word);
    memcpy(to, &word, 4);
}

static uint32_t get(const unsigned char *from) {
    uint32_t word;
    memcpy(&word, from, 4);
    return ntohl(word);
}

/* Sends a control packet with `count` words after the header. */
static void say(const struct client *to, int type, uint32_t information, const uint32_t *words, int count) {
    unsigned char packet[256];
    put(packet, 0x80000000U | (uint32_t)type << 16);
    put(packet + 4, information);
    put(packet + 8, stamp());
    put(packet + 12, to->peer);
    for (int word = 0; word < count; word++)
        put(packet + HEADER + 4 * word, words[word]);
    if (send(to->fd, packet, HEADER + 4 * (size_t)count, 0) < 0 && errno != ECONNREFUSED)
        die("send");
}

/* Sends a handshake until it is answered. The answer is in the first buffer. */
static void ask(const struct client *to, const uint32_t *words, int count) {
    for (int turn = 0; turn < 40; turn++) {
        say(to, HANDSHAKE, 0, words, count);
        struct pollfd ready = {.fd = to->fd, .events = POLLIN};
        if (poll(&ready, 1, 250) > 0 && recv(to->fd, rooms[0], ROOM, 0) >= HEADER + 48 && get(rooms[0]) == 0x80000000U)
            return;
    }
    fputs("no answer to a handshake\n", stderr);
    exit(1);
}

static struct client join(int port, int number, int sends) {
    struct client client = {.fd = socket(AF_INET, SOCK_DGRAM, 0), .last = FIRST - 1, .acknowledged = FIRST - 1, .next = FIRST};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (client.fd < 0 || connect(client.fd, (struct sockaddr *)&to, sizeof to) < 0)
        die("connect");
    /* Version, extension, first sequence number, MTU, window, type, own socket id, cookie, address. */
    uint32_t words[32] = {4, 2, FIRST, 1500, 8192, 1, 0x10000U + (uint32_t)number, 0, 0x0100007f};
    ask(&client, words, 12);
    words[0] = 5, words[1] = 1 | 4, words[5] = 0xffffffff, words[7] = get(rooms[0] + HEADER + 28);
    /* HSREQ: version 1.5.1; TSBPD both ways, crypto, too-late packet drop, periodic NAK, retransmission flag; 120 ms. */
    words[12] = 1U << 16 | 3, words[13] = 0x00010501, words[14] = 0x3f, words[15] = 120U << 16 | 120;
    char name[32] = {0};
    int length = snprintf(name, sizeof name, sends ? "publish:bare%d" : "bare", number);
    int count = (length + 3) / 4;
    words[16] = 5U << 16 | (uint32_t)count;
    for (int word = 0; word < count; word++)
        memcpy(&words[17 + word], name + 4 * word, 4); /* Reversed on the wire, like a word of a little-endian host. */
    ask(&client, words, 17 + count);
    if (get(rooms[0] + HEADER + 20) != 0xffffffff) {
        fprintf(stderr, "rejected: %u\n", get(rooms[0] + HEADER + 20));
        exit(1);
    }
    client.peer = get(rooms[0] + HEADER + 24);
    /* The peer's first sequence number, which counts if the peer sends. */
    client.last = client.acknowledged = get(rooms[0] + HEADER + 8) - 1;
    return client;
}

/* Reads all packets of a client and returns the number of media packets. Answers ACKs if the client sends. */
static unsigned long sweep(struct client *client) {
    unsigned long media = 0;
    for (int count = BATCH; count == BATCH;) {
        count = recvmmsg(client->fd, messages, BATCH, MSG_DONTWAIT, NULL);
        for (int each = 0; each < count; each++) {
            uint32_t word = get(rooms[each]);
            if (word < 0x80000000U)
                media++, client->last = word;
            else if (word == (0x80000000U | ACK << 16) && get(rooms[each] + 4) != 0)
                say(client, ACKACK, get(rooms[each] + 4), (uint32_t[]){0}, 1);
        }
    }
    return media;
}

static void acknowledge(struct client *client) {
    if (client->last == client->acknowledged)
        return;
    client->acknowledged = client->last;
    uint32_t words[7] = {client->last + 1, 1000, 500, 8000, 228, 1000, 300000};
    say(client, ACK, ++client->acks, words, 7);
}

static unsigned long receive(struct client *clients, int count, int64_t end) {
    unsigned long media = 0, turn = 0;
    for (int64_t at = now(); at < end; at += SWEEP, turn++) {
        for (int client = 0; client < count; client++) {
            media += sweep(&clients[client]);
            /* Half of the clients each time. */
            if ((turn + (unsigned)client) % 2 == 0)
                acknowledge(&clients[client]);
        }
        sleep_until(at + SWEEP);
    }
    return media;
}

static unsigned long transmit(struct client *clients, int count, int64_t end, double kbps, int hears) {
    static unsigned char packet[HEADER + PAYLOAD];
    for (int each = 0; each < 7; each++)
        memcpy(packet + HEADER + 188 * each, "\x47\x1f\xff\x10", 4); /* Null packets. */
    double apart = PAYLOAD * 8e6 / kbps / count;
    int64_t begin = now(), swept = begin;
    unsigned long sent = 0;
    for (int64_t at = begin; at < end; at = now()) {
        /* Like streamgauge: packets due within 250 us leave together. */
        while (begin + (int64_t)((double)sent * apart) <= at) {
            struct client *client = &clients[sent % (unsigned)count];
            put(packet, client->next++ & 0x7fffffff);
            put(packet + 4, 3U << 30 | (client->next - FIRST)); /* One packet is the whole message. */
            put(packet + 8, (uint32_t)((at - epoch) / 1000));
            put(packet + 12, client->peer);
            if (send(client->fd, packet, sizeof packet, 0) < 0)
                die("send");
            sent++;
        }
        if (hears && at - swept >= SWEEP) {
            swept = at;
            for (int client = 0; client < count; client++)
                sweep(&clients[client]);
        }
        int64_t due = begin + (int64_t)((double)sent * apart);
        sleep_until(due > at + 250000 ? due : at + 250000);
    }
    return sent;
}

int main(int count, char **words) {
    if (count < 5 || (words[1][0] != 'r' && count < 6))
        return 2;
    int sends = words[1][0] != 'r', port = atoi(words[2]), number = atoi(words[3]);
    struct client *clients = calloc((size_t)number, sizeof *clients);
    prctl(PR_SET_TIMERSLACK, 1UL);
    epoch = now();
    for (int each = 0; each < BATCH; each++) {
        vectors[each] = (struct iovec){rooms[each], ROOM};
        messages[each].msg_hdr = (struct msghdr){.msg_iov = &vectors[each], .msg_iovlen = 1};
    }
    for (int each = 0; each < number; each++)
        clients[each] = join(port, each, sends);
    puts("begun");
    fflush(stdout);
    int64_t end = now() + (int64_t)(atof(words[4]) * 1e9);
    unsigned long done = sends ? transmit(clients, number, end, atof(words[5]), words[1][0] == 's') : receive(clients, number, end);
    for (int each = 0; each < number; each++)
        say(&clients[each], SHUTDOWN, 0, (uint32_t[]){0}, 1);
    printf("%lu\n", done);
    return 0;
}
