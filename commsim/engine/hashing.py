"""A hash of whole numbers, for choices that look random and are the same every time.

splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014,
doi:10.1145/2660193.2660195.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.chunks import Ints
from commsim.engine.network import Floats

Words = NDArray[np.uint64]


def mix(word: Words, other: Words | Ints | int) -> Words:
    """A new 64-bit word from a word and a number, element by element."""
    number = np.asarray(other).astype(np.uint64)
    z = (word ^ number) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform(word: Words) -> Floats:
    """Words as numbers from 0 to 1."""
    return np.asarray((word >> np.uint64(11)) * 2.0**-53)
