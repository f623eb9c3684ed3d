/* SPDX-License-Identifier: Apache-2.0 */
/* Random AllReduce calls, every element of every rank checked:
 *   ips-soak --ranks N --seed S (--calls C | --seconds T) [--max-bytes B] [--large L]
 *            [--remake R] [--delay D]
 * The ranks are processes with IPS_SHIM preloaded. Ends with 0 when nothing was wrong,
 * and prints what was done as one JSON line. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "policy/policy.h"
#include "tests/soak/rank.h"

static void name_rank(unsigned rank, void *arg)
{
    char text[16];
    (void)arg;
    snprintf(text, sizeof text, "%u", rank);
    setenv("RANK", text, 1);
    if (getenv("IPS_SHIM"))
        setenv("LD_PRELOAD", getenv("IPS_SHIM"), 1);
}

static int read_options(struct soak_options *o, int argc, char **argv, int *ret_fd)
{
    static const struct option options[] = {
        {"ranks", 1, NULL, 'n'},     {"seed", 1, NULL, 's'},
        {"calls", 1, NULL, 'c'},     {"seconds", 1, NULL, 't'},
        {"large", 1, NULL, 'l'},     {"remake", 1, NULL, 'r'},
        {"max-bytes", 1, NULL, 'b'}, {"delay", 1, NULL, 'd'},
        {"page", 1, NULL, 'p'},      {0}};
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        unsigned long long number = optarg ? strtoull(optarg, NULL, 0) : 0;
        switch (option) {
        case 'n':
            o->nranks = (uint32_t)number;
            break;
        case 's':
            o->seed = number;
            break;
        case 'c':
            o->calls = number;
            break;
        case 't':
            o->seconds = (double)number;
            break;
        case 'l':
            o->large = (uint32_t)number;
            break;
        case 'r':
            o->remake = (uint32_t)number;
            break;
        case 'b':
            o->max_bytes = number;
            break;
        case 'd':
            o->delay = (uint32_t)number;
            break;
        case 'p':
            *ret_fd = (int)number;
            break;
        default:
            return -1;
        }
    }
    return o->nranks < IPS_MIN_RANKS || o->nranks > IPS_MAX_RANKS ||
                   o->max_bytes < 4096 || (!o->calls && o->seconds <= 0)
               ? -1
               : 0;
}

static void print_variants(const char *name, const uint64_t *counts)
{
    printf(", \"%s\": {", name);
    for (int p = 0; p < IPS_VARIANTS; p++)
        printf("%s\"%s\": %llu", p ? ", " : "", ips_variant_name(p),
               (unsigned long long)counts[p]);
    printf("}");
}

/* Ranks do the same; elements and wrong ones add up. */
static void print_result(const struct soak_page *page, double seconds)
{
    const struct soak_count *c = &page->count[0];
    uint64_t elements = 0, wrong = 0;
    for (unsigned r = 0; r < page->options.nranks; r++) {
        elements += page->count[r].elements;
        wrong += page->count[r].wrong;
    }
    printf(
        "{\"ranks\": %u, \"seed\": %llu, \"calls\": %llu, \"elements\": %llu, "
        "\"wrong\": %llu, \"seconds\": %.1f, \"rounds\": %llu, \"communicators\": %llu, "
        "\"captured\": %llu, \"nccl\": %llu",
        page->options.nranks, (unsigned long long)page->options.seed,
        (unsigned long long)c->calls, (unsigned long long)elements,
        (unsigned long long)wrong, seconds, (unsigned long long)c->rounds,
        (unsigned long long)c->comms, (unsigned long long)c->captured,
        (unsigned long long)c->nccl);
    print_variants("eager", c->eager);
    print_variants("replayed", c->replayed);
    printf("}\n");
    fflush(stdout);
}

static int run_ranks(struct soak_page *page, int fd)
{
    char text[32];
    struct timespec start, end;
    struct fleet fleet = {.sync = &page->sync};
    snprintf(text, sizeof text, "--page=%d", fd);
    /* The rank reads its options from the page; these only have to pass the check. */
    char *argv[] = {"/proc/self/exe", "--ranks=2", "--calls=1", text, NULL};
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (fleet_start(&fleet, page->options.nranks, argv, name_rank, NULL))
        return 2;
    int status = fleet_wait(&fleet, NULL, NULL, NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    print_result(page, (double)(end.tv_sec - start.tv_sec) +
                           (double)(end.tv_nsec - start.tv_nsec) * 1e-9);
    for (unsigned r = 0; r < page->options.nranks; r++)
        if (page->count[r].wrong || page->count[r].calls != page->count[0].calls)
            return status ? status : 1;
    return status;
}

int main(int argc, char **argv)
{
    struct soak_options options = {
        .nranks = 2, .max_bytes = 1 << 20, .large = 10, .remake = 500, .delay = 50};
    int fd = -1;
    if (read_options(&options, argc, argv, &fd)) {
        fprintf(stderr, "ips-soak: bad options\n");
        return 2;
    }
    int inherited = fd >= 0;
    struct soak_page *page =
        inherited ? fleet_attach(fd, sizeof *page) : fleet_share(sizeof *page, &fd);
    if (!page)
        return 2;
    if (inherited)
        return soak_rank_run(page, (unsigned)atoi(getenv("RANK")));
    page->options = options;
    page->last_round = UINT64_MAX;
    return run_ranks(page, fd);
}
