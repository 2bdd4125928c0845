"""Gets a URL, writes BYTES bytes of its body to FILE, and prints the status. Usage: get.py URL BYTES FILE"""

import sys
import urllib.error
import urllib.request

url, wanted, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
try:
    answer = urllib.request.urlopen(url, timeout=20)
except urllib.error.HTTPError as error:
    print(error.code)
    sys.exit(0)
with open(path, "wb") as file:
    while wanted > 0:
        part = answer.read(min(wanted, 1316))
        if not part:
            sys.exit(f"the body ended {wanted} bytes early")
        wanted -= len(part)
        file.write(part)
print(answer.status)
