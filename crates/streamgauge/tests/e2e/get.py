"""Gets a URL, and writes so many bytes of its body to a file. Prints the status; usage: get.py URL BYTES FILE"""

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
            sys.exit(f"it ended {wanted} bytes before")
        wanted -= len(part)
        file.write(part)
print(answer.status)
