#!/usr/bin/env python3
"""Tests the evaluation of bench/run and bench/srt with invented figures."""

import argparse
import importlib.machinery
import importlib.util
import os
import pathlib
import sys
import time
import unittest

BENCH = pathlib.Path(__file__).resolve().parent.parent / "bench"
sys.dont_write_bytecode = True
sys.path.insert(0, str(BENCH))

import machine  # noqa: E402
import receivers  # noqa: E402
import table  # noqa: E402


def program(name):
    """Loads a program of the folder as a module."""
    loader = importlib.machinery.SourceFileLoader(f"bench_{name}", str(BENCH / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(f"bench_{name}", loader))
    loader.exec_module(module)
    return module


RUN = program("run")
SRT = program("srt")


def raw(turn=0, **other):
    """Figures of four seconds with 100,000 packets each."""
    return {
        "round": turn, "seconds": 4.0, "transport": "udp", "packets": 400_000, "offered": 400_000, "lost": 0, "clients": 10,
        "playing": 10, "busy": 2.0, "own": 1.0, "own_user": 0.25, "own_system": 0.75, "server": 0.8, "elsewhere": 0.0,
        "memory": {"pss": 10 * 4096, "rss": 10 * 8192}, "setup_p50": 0.001, "setup_p95": 0.002, "server_sent": 500_000,
        "expected_in_all": 500_000, **other,
    }


class Figures(unittest.TestCase):
    def test_cpu_of_a_packet_is_own_and_attributable(self):
        baseline = [raw(0, busy=0.8), raw(1, busy=1.2)]
        found = RUN.figures([raw(0), raw(1)], baseline)
        self.assertAlmostEqual(found["own"]["median"], 2.5)
        self.assertAlmostEqual(found["user"]["median"] + found["system"]["median"], 2.5)
        # Each round is compared with the baseline of the same round.
        self.assertAlmostEqual(found["attributable"]["max"], 3.0)
        self.assertAlmostEqual(found["attributable"]["min"], 2.0)
        self.assertEqual(found["memory_per_client"]["median"], 4096)
        self.assertEqual(found["marks"], [])

    def test_there_is_no_attributable_figure_without_a_baseline_of_the_same_traffic(self):
        self.assertIsNone(RUN.figures([raw()], [])["attributable"])
        self.assertIsNone(RUN.figures([raw(1)], [raw(0)])["attributable"])
        self.assertIsNone(RUN.figures([raw(transport="tcp")], [raw(busy=1.0)])["attributable"])

    def test_a_row_that_cannot_be_compared_is_marked(self):
        def marks(**other):
            return RUN.figures([raw(**other)], [raw()])["marks"]

        self.assertEqual(marks(lost=1), ["lost packets"])
        self.assertEqual(marks(playing=9), ["not all clients played"])
        self.assertEqual(marks(offered=390_000), ["was not offered the same"])
        self.assertEqual(marks(server_sent=520_000), ["the server sent another number"])
        self.assertEqual(marks(offered=399_000, server_sent=501_000, expected_in_all=None), [])

    def test_the_table_shows_ratios_and_what_is_left_out(self):
        rows = {name: {"raw": raws, **RUN.figures(raws, [raw(busy=1.0)])} for name, raws in {
            "drop": [raw(busy=1.0)], "recvmmsg": [raw(own=0.5)], "sockets": [raw(lost=3)],
            "gortsplib-udp": [raw(own=4.0, busy=5.0)]}.items()}
        text = table.step({"clients": 10, "bitrate": 200_000, "bitrate_chosen_by": "trying", "rows": rows,
                           "left_out": {"ring": "why not"}})
        sockets = next(line for line in text.splitlines() if line.startswith("streamgauge by sockets*"))
        # A quarter of gortsplib's own and attributable CPU, twice the bare loop's.
        self.assertEqual(sockets.split()[-3:], ["4.0x", "4.0x", "2.0x"])
        self.assertIn("* streamgauge by sockets: lost packets", text)
        self.assertIn("left out: streamgauge by ring: why not", text)
        self.assertIn("10 clients at 200 kb/s each: ", text)


def srt(turn=0, **other):
    """A round of 100 clients with about 22,800 packets a second."""
    return {"round": turn, "clients": 100, "own": 0.0228, "server": 0.0456, "others": 0.5, "pss": 20 << 20, "threads": 4, **other}


class Srt(unittest.TestCase):
    def test_a_packet_costs_what_was_used_over_what_was_offered(self):
        self.assertAlmostEqual(SRT.per_packet(srt(), 100, 2400), 1.0, places=3)
        self.assertAlmostEqual(SRT.per_packet(srt(), 100, 2400, "server"), 2.0, places=3)
        # Half as many clients use as much.
        self.assertAlmostEqual(SRT.per_packet(srt(), 50, 2400), 2.0, places=3)

    def test_a_round_is_compared_with_the_bare_loop_of_the_same_round(self):
        bare = [srt(0, own=0.0114), srt(1, own=0.0456)]
        found = SRT.ratios([srt(1), srt(0), srt(2)], bare, 100, 2400)
        self.assertEqual([round(ratio, 6) for ratio in found], [0.5, 2.0])

    def test_the_table_has_memory_of_a_further_client(self):
        options = argparse.Namespace(clients=100, kbps=2400)
        results = {"receive": {"rounds": [srt()], "one": srt(pss=(20 << 20) - 99 * 10 * 1024, threads=3)},
                   "receive, bare": {"rounds": [srt(own=0.0114)], "one": srt()}}
        line = next(line for line in SRT.table(results, options).splitlines() if line.startswith("receive (100)"))
        self.assertEqual(line.split(), "receive (100) 1.00 (1.00..1.00) 2.00 (2.00..2.00) 2.00 (2.00..2.00) 10.0 4/3 0.50 (0.50..0.50)".split())

    def test_what_the_server_counted_tells_whether_a_round_can_be_compared(self):
        played = {"connection": 0, "rejected": None, "media": 1000, "sender": {"pktRecvACK": 5, "pktRetrans": 2, "pktSndDrop": 1}}
        published = {"connection": 1, "rejected": None, "media": 1000, "receiver": {"pktSentACK": 6, "pktRcvLoss": 4, "pktRcvDrop": 3}}
        rejected = {"connection": 2, "rejected": "2404", "media": 0}
        served = SRT.counted([played, published, rejected, {"served": {"connections": 3}}])
        self.assertEqual(served, {"media": 2000, "trouble": 10, "connections": 2, "acks": 11})
        self.assertEqual(SRT.marks({"served": served | {"trouble": 0}, "planned": 2050.0}, 2), [])
        self.assertEqual(len(SRT.marks({"served": served, "planned": 3000.0}, 3)), 3)


class Machine(unittest.TestCase):
    def test_the_clock_of_a_process_is_its_cpu_time(self):
        before, since = machine.cpu_clock(os.getpid()), time.process_time()
        while time.process_time() - since < 0.02:
            pass
        self.assertAlmostEqual(machine.cpu_clock(os.getpid()) - before, time.process_time() - since, delta=0.005)

    def test_memory_of_several_processes_is_added(self):
        once = machine.memory([os.getpid()])
        twice = machine.memory([os.getpid(), os.getpid()])
        self.assertGreater(once["pss"], 0)
        self.assertAlmostEqual(twice["rss"], 2 * once["rss"], delta=0.1 * once["rss"])

    def test_lower_rates_are_fewer_packets(self):
        about = [receivers.packets_about(rate) for rate in RUN.RATES]
        self.assertEqual(about, sorted(about, reverse=True))


if __name__ == "__main__":
    unittest.main()
