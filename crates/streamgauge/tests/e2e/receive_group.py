"""Receives datagrams of a multicast group on the loopback interface, and writes each to a file, after its length.

Arguments: group, port, number of datagrams, file. Ends after that many, or after ten seconds without one.
"""

import socket
import struct
import sys

group, port, count, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
family = socket.AF_INET6 if ":" in group else socket.AF_INET
with socket.socket(family, socket.SOCK_DGRAM) as receiver, open(path, "wb") as out:
    # SO_RCVBUFFORCE exceeds the system's limit. If it is not permitted, the default buffer has to suffice.
    try:
        receiver.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)
    except PermissionError:
        pass
    receiver.bind((group, port))
    number = socket.if_nametoindex("lo")
    if family == socket.AF_INET6:
        request = socket.inet_pton(family, group) + struct.pack("@I", number)
        receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)
    else:
        request = socket.inet_aton(group) + struct.pack("@4si", socket.inet_aton("0.0.0.0"), number)
        receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
    receiver.settimeout(10)
    for _ in range(count):
        datagram = receiver.recv(2048)
        out.write(struct.pack(">H", len(datagram)) + datagram)
