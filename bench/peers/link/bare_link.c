/* A minimal emulated link: one thread carries packets from one TUN interface to another after a fixed
 * delay, and back without delay. There is no loss and no rate limit; it records only how late packets
 * left.
 *
 *   bare_link DELAY_US PROGRAM ARGUMENTS...
 *
 * The program runs in a network behind the link, where this machine is 10.83.0.1.
 *
 * Like streamgauge, it sleeps until 40 us before a packet is due, has real-time priority if
 * permitted, and reads and sends up to 16 packets at a time. It prints JSON about the direction from
 * the program: packets; packets dropped by the interface or for lack of room; and lateness (p50, p99
 * and maximum, in microseconds). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 1 << 16, LONGEST = 1600, BURST = 16, BINS = 200000, AWAKE = 40000 };

struct packet {
    int64_t due;
    int length;
    unsigned char bytes[LONGEST];
};

static struct packet *ring;
static unsigned long head, tail, packets, dropped;
static uint32_t late[BINS + 1]; /* In bins of 100 ns. */
static int64_t latest;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int tun(const char *name) {
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) < 0)
        die("tun");
    return fd;
}

static void run(const char *command) {
    if (system(command) != 0)
        die(command);
}

static unsigned long transmit_drops(void) {
    FILE *file = fopen("/sys/class/net/barelink/statistics/tx_dropped", "r");
    unsigned long count = 0;
    if (file && fscanf(file, "%lu", &count) != 1)
        count = 0;
    if (file)
        fclose(file);
    return count;
}

static double quantile(double share) {
    uint64_t wanted = (uint64_t)(share * (double)packets), seen = 0;
    for (int bin = 0; bin <= BINS; bin++)
        if ((seen += late[bin]) > wanted)
            return bin / 10.0;
    return 0;
}

int main(int count, char **words) {
    if (count < 3)
        return 2;
    int64_t delay = atol(words[1]) * 1000;
    int far = tun("barefar");
    run("ip addr add 10.83.0.1/30 dev barefar && ip link set barefar up mtu 1500");
    if (unshare(CLONE_NEWNET) < 0)
        die("unshare");
    int near = tun("barelink");
    run("ip link set lo up; ip addr add 10.83.0.2/30 dev barelink && "
        "ip link set barelink up mtu 1500 txqueuelen 10000");
    /* Makes /sys show the new network. */
    if (unshare(CLONE_NEWNS) < 0)
        die("unshare");
    run("mount --make-rprivate / && mount -t sysfs none /sys");
    pid_t program = fork();
    if (program == 0) {
        execvp(words[2], words + 2);
        die(words[2]);
    }
    ring = calloc(ROOM, sizeof *ring);
    memset(ring, 0, ROOM * sizeof *ring);
    prctl(PR_SET_TIMERSLACK, 1UL);
    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1});
    unsigned long drops = transmit_drops();
    for (int turn = 0;; turn++) {
        int busy = 0;
        for (int each = 0; each < BURST && tail != head; each++) {
            struct packet *packet = &ring[tail % ROOM];
            int64_t at = now(), behind = at - packet->due;
            if (behind < 0)
                break;
            if (write(far, packet->bytes, packet->length) < 0 && errno != EINVAL)
                dropped++;
            late[behind / 100 < BINS ? behind / 100 : BINS]++;
            latest = behind > latest ? behind : latest;
            packets++, tail++, busy = 1;
        }
        for (int each = 0; each < BURST; each++) {
            struct packet *packet = &ring[head % ROOM];
            ssize_t length = read(near, packet->bytes, LONGEST);
            if (length < 0)
                break;
            busy = 1;
            if (head - tail == ROOM - 1) {
                dropped++;
                continue;
            }
            packet->length = (int)length;
            packet->due = now() + delay;
            head++;
        }
        unsigned char bytes[LONGEST];
        for (ssize_t length; (length = read(far, bytes, LONGEST)) > 0; busy = 1)
            if (write(near, bytes, length) < 0 && errno != EINVAL)
                dropped++;
        if (busy)
            continue;
        if (turn % 64 == 0 && tail == head && waitpid(program, NULL, WNOHANG) == program)
            break;
        int64_t wait = tail != head ? ring[tail % ROOM].due - now() - AWAKE : 10000000;
        if (wait <= 0)
            continue;
        struct timespec timeout = {0, wait < 10000000 ? wait : 10000000};
        struct pollfd polled[2] = {{.fd = near, .events = POLLIN}, {.fd = far, .events = POLLIN}};
        ppoll(polled, 2, &timeout, NULL);
    }
    printf("{\"packets\": %lu, \"overload\": %lu, \"p50\": %.1f, \"p99\": %.1f, \"max\": %.1f}\n",
           packets, dropped + transmit_drops() - drops, quantile(0.5), quantile(0.99),
           latest / 1000.0);
    return 0;
}
