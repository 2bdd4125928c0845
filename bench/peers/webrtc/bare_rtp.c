/* Plain RTP over UDP without inspection of anything: the minimal cost of a receiver of this many streams, and a source of them.
 *
 *   bare_rtp send ADDRESS PORT COUNT EVERY_MS PACKETS SIZE SECONDS   PACKETS of SIZE bytes to each of COUNT ports, every EVERY_MS
 *   bare_rtp publish ADDRESS PORT COUNT EVERY_MS PACKETS SIZE SECONDS the same to one port, like clients: from COUNT sockets, one
 *                                                                   after the other within EVERY_MS, with one call for PACKETS
 *   bare_rtp receive ADDRESS PORT COUNT SECONDS SWEEP_MS             COUNT ports, all of which are read every SWEEP_MS
 *
 * Both exit after SECONDS or on a signal, and print how many packets they sent or received, and how many the kernel refused or
 * dropped. A receiver prints `ready` first.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BATCH 64
#define LARGEST 1500

static volatile sig_atomic_t over;

static void end(int signal) {
  (void)signal;
  over = 1;
}

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void sleep_until(uint64_t at) {
  struct timespec time = {.tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR && !over) {
  }
}

static struct sockaddr_in address(const char *text, int port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  if (inet_pton(AF_INET, text, &address.sin_addr) != 1) {
    fprintf(stderr, "%s is no IPv4 address\n", text);
    exit(1);
  }
  return address;
}

static void send_all(const char *host, int port, int count, int every_ms, int packets, int size, double seconds) {
  int socket_ = socket(AF_INET, SOCK_DGRAM, 0);
  if (socket_ < 0)
    fail("socket");
  struct sockaddr_in *to = calloc((size_t)count, sizeof *to);
  for (int each = 0; each < count; each++)
    to[each] = address(host, port + each);
  static uint8_t payload[LARGEST];
  memset(payload, 0x41, sizeof payload);
  uint64_t began = now(), at = began, sent = 0, refused = 0;
  uint16_t number = 0;
  uint32_t stamp = 0;
  while (!over && now() < began + (uint64_t)(seconds * 1e9)) {
    for (int packet = 0; packet < packets; packet++) {
      /* RFC 3550, 5.1: version 2, payload type 96, marker on the last packet of a picture. */
      uint8_t head[12] = {0x80, (uint8_t)(96 | (packet == packets - 1 ? 0x80 : 0)), (uint8_t)(number >> 8), (uint8_t)number,
                          (uint8_t)(stamp >> 24), (uint8_t)(stamp >> 16), (uint8_t)(stamp >> 8), (uint8_t)stamp, 1, 2, 3, 4};
      number++;
      struct iovec parts[2] = {{head, sizeof head}, {payload, (size_t)size - sizeof head}};
      for (int first = 0; first < count;) {
        struct mmsghdr messages[BATCH];
        int many = count - first < BATCH ? count - first : BATCH;
        memset(messages, 0, sizeof messages);
        for (int each = 0; each < many; each++) {
          struct msghdr *message = &messages[each].msg_hdr;
          message->msg_name = &to[first + each];
          message->msg_namelen = sizeof to[0];
          message->msg_iov = parts;
          message->msg_iovlen = 2;
        }
        int done = sendmmsg(socket_, messages, (unsigned)many, 0);
        if (done <= 0) {
          refused += 1;
          first += 1;
        } else {
          sent += (uint64_t)done;
          first += done;
        }
      }
    }
    stamp += (uint32_t)every_ms * 90;
    at += (uint64_t)every_ms * 1000000u;
    sleep_until(at);
  }
  printf("%llu %llu\n", (unsigned long long)sent, (unsigned long long)refused);
}

static void publish_all(const char *host, int port, int count, int every_ms, int packets, int size, double seconds) {
  int *sockets = calloc((size_t)count, sizeof *sockets);
  struct sockaddr_in to = address(host, port);
  for (int each = 0; each < count; each++) {
    sockets[each] = socket(AF_INET, SOCK_DGRAM, 0);
    if (sockets[each] < 0 || connect(sockets[each], (struct sockaddr *)&to, sizeof to) < 0)
      fail("socket");
  }
  static uint8_t payload[LARGEST];
  memset(payload, 0x41, sizeof payload);
  if (packets > BATCH)
    packets = BATCH;
  uint8_t heads[BATCH][12];
  struct iovec parts[BATCH][2];
  struct mmsghdr messages[BATCH];
  memset(messages, 0, sizeof messages);
  for (int packet = 0; packet < packets; packet++) {
    memset(heads[packet], 0x80, sizeof heads[packet]);
    parts[packet][0] = (struct iovec){heads[packet], sizeof heads[packet]};
    parts[packet][1] = (struct iovec){payload, (size_t)size - sizeof heads[packet]};
    messages[packet].msg_hdr = (struct msghdr){.msg_iov = parts[packet], .msg_iovlen = 2};
  }
  uint64_t began = now(), sent = 0, refused = 0, step = (uint64_t)every_ms * 1000000u / (uint64_t)count;
  for (uint64_t turn = 0; !over && now() < began + (uint64_t)(seconds * 1e9); turn++) {
    sleep_until(began + turn * step);
    int done = sendmmsg(sockets[turn % (uint64_t)count], messages, (unsigned)packets, 0);
    sent += done > 0 ? (uint64_t)done : 0;
    refused += (uint64_t)(packets - (done > 0 ? done : 0));
  }
  printf("%llu %llu\n", (unsigned long long)sent, (unsigned long long)refused);
}

static void receive_all(const char *host, int port, int count, double seconds, int sweep_ms) {
  int *sockets = calloc((size_t)count, sizeof *sockets);
  for (int each = 0; each < count; each++) {
    struct sockaddr_in own = address(host, port + each);
    sockets[each] = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    int on = 1;
    if (sockets[each] < 0 || setsockopt(sockets[each], SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof on) < 0)
      fail("socket");
    if (bind(sockets[each], (struct sockaddr *)&own, sizeof own) < 0)
      fail("bind");
  }
  puts("ready");
  fflush(stdout);
  static uint8_t room[BATCH][LARGEST];
  static uint8_t control[BATCH][CMSG_SPACE(sizeof(uint32_t))];
  struct mmsghdr messages[BATCH];
  struct iovec parts[BATCH];
  uint32_t *dropped = calloc((size_t)count, sizeof *dropped);
  uint64_t began = now(), at = began, received = 0;
  while (!over && now() < began + (uint64_t)(seconds * 1e9)) {
    for (int each = 0; each < count; each++) {
      int got;
      do {
        for (int slot = 0; slot < BATCH; slot++) {
          parts[slot] = (struct iovec){room[slot], LARGEST};
          messages[slot].msg_hdr = (struct msghdr){.msg_iov = &parts[slot],
                                                   .msg_iovlen = 1,
                                                   .msg_control = control[slot],
                                                   .msg_controllen = sizeof control[slot]};
        }
        got = recvmmsg(sockets[each], messages, BATCH, MSG_DONTWAIT, NULL);
        if (got > 0) {
          received += (uint64_t)got;
          struct cmsghdr *head = CMSG_FIRSTHDR(&messages[got - 1].msg_hdr);
          if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SO_RXQ_OVFL)
            memcpy(&dropped[each], CMSG_DATA(head), sizeof dropped[each]);
        }
      } while (got == BATCH);
    }
    at += (uint64_t)sweep_ms * 1000000u;
    sleep_until(at);
  }
  uint64_t lost = 0;
  for (int each = 0; each < count; each++)
    lost += dropped[each];
  printf("%llu %llu\n", (unsigned long long)received, (unsigned long long)lost);
}

int main(int count, char **words) {
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  signal(SIGTERM, end);
  signal(SIGINT, end);
  if (count == 9 && (strcmp(words[1], "send") == 0 || strcmp(words[1], "publish") == 0)) {
    int size = atoi(words[7]);
    if (size < 13 || size > LARGEST) {
      fprintf(stderr, "SIZE is 13 to %d\n", LARGEST);
      return 2;
    }
    (words[1][0] == 's' ? send_all : publish_all)(words[2], atoi(words[3]), atoi(words[4]), atoi(words[5]), atoi(words[6]), size, atof(words[8]));
  } else if (count == 7 && strcmp(words[1], "receive") == 0) {
    receive_all(words[2], atoi(words[3]), atoi(words[4]), atof(words[5]), atoi(words[6]));
  } else {
    fprintf(stderr, "usage: bare_rtp send|publish ADDRESS PORT COUNT EVERY_MS PACKETS SIZE SECONDS\n"
                    "       bare_rtp receive ADDRESS PORT COUNT SECONDS SWEEP_MS\n");
    return 2;
  }
  return 0;
}
