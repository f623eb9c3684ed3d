#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The library embeds the fat binary that was built last.

usage: check_image.py LIBRARY FATBIN"""
import sys

import kernel_code

library, fatbin = sys.argv[1:]
if not fatbin:
    kernel_code.skip("no nvcc here")
with open(library, "rb") as so, open(fatbin, "rb") as image:
    if image.read() not in so.read():
        sys.exit(f"{library} does not hold {fatbin}: it was not linked anew")
print("as built")
