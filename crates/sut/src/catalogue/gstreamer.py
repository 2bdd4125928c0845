"""An RTSP server made of GStreamer's: clip files on demand, and one live stream.

/clip1, /clip2, ...  the files given, from their start for every client
/live                one live test stream that all its clients share
"""

import argparse
import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer

LIVE = (
    "videotestsrc is-live=true pattern=ball ! video/x-raw,width=640,height=360,framerate=25/1 "
    "! x264enc tune=zerolatency speed-preset=ultrafast bitrate=1000 key-int-max=50 "
    "! rtph264pay name=pay0 pt=96 config-interval=-1"
)
CLIP_VIDEO = (
    'filesrc location="{path}" ! qtdemux name=demux '
    "demux.video_0 ! queue ! rtph264pay name=pay0 pt=96 config-interval=-1"
)
CLIP_AUDIO = " demux.audio_0 ! queue ! rtpmp4gpay name=pay1 pt=97"
ELEMENTS = {
    "videotestsrc": "plugins-base",
    "qtdemux": "plugins-good",
    "rtph264pay": "plugins-good",
    "rtpmp4gpay": "plugins-good",
    "x264enc": "plugins-ugly",
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", required=True)
    parser.add_argument("--audio", action="store_true", help="the clips have audio")
    parser.add_argument("clips", nargs="*")
    arguments = parser.parse_args()
    Gst.init(None)
    for element, package in ELEMENTS.items():
        if Gst.ElementFactory.find(element) is None:
            sys.exit(f"GStreamer has no {element}: apt-get install gstreamer1.0-{package}")
    server = GstRtspServer.RTSPServer()
    server.set_service(arguments.port)
    mounts = server.get_mount_points()
    for number, path in enumerate(arguments.clips, 1):
        factory = GstRtspServer.RTSPMediaFactory()
        launch = CLIP_VIDEO.format(path=path) + (CLIP_AUDIO if arguments.audio else "")
        factory.set_launch(f"( {launch} )")
        mounts.add_factory(f"/clip{number}", factory)
    live = GstRtspServer.RTSPMediaFactory()
    live.set_launch(f"( {LIVE} )")
    live.set_shared(True)
    pool = GstRtspServer.RTSPAddressPool()
    pool.add_range("239.81.1.1", "239.81.1.10", 5000, 5100, 1)
    live.set_address_pool(pool)
    lower = gi.repository.GstRtsp.RTSPLowerTrans
    live.set_protocols(lower.UDP | lower.TCP | lower.UDP_MCAST)
    mounts.add_factory("/live", live)
    if server.attach(None) == 0:
        sys.exit(f"cannot listen on port {arguments.port}")
    # Sessions whose clients went away without a word.
    GLib.timeout_add_seconds(10, lambda: server.get_session_pool().cleanup() >= 0)
    print(f"serving on port {arguments.port}", flush=True)
    GLib.MainLoop().run()


main()
