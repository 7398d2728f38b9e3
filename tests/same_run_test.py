"""The methods that tests go through (same_run.py) are those that the program lists."""

import re
import unittest

from program import ProgramTest
from same_run import AFTER_TRAINING, METHODS


class Methods(ProgramTest):
    def test_none_is_left_out(self):
        shown = " ".join(self.succeed("train", "--help", "forgetting").stdout.split())
        listed = re.search(r"what decides which memories stay \(one of ([\w, ]+)\)", shown)
        self.assertTrue(listed, shown)
        self.assertEqual({*METHODS, *AFTER_TRAINING}, set(listed[1].split(", ")), "give it small options in METHODS of tests/same_run.py")
        self.assertEqual(set(METHODS) & AFTER_TRAINING, set())


if __name__ == "__main__":
    unittest.main()
