/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers from a seed (splitmix64). */
#ifndef IPS_TESTS_RANDOM_H
#define IPS_TESTS_RANDOM_H

#include <stdint.h>

static inline uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline unsigned random_below(uint64_t *state, unsigned limit)
{
    return (unsigned)(random_next(state) >> 32) % limit;
}

static inline int random_chance(uint64_t *state, unsigned percent)
{
    return random_below(state, 100) < percent;
}

#endif
