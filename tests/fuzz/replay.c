/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target without libFuzzer: on every file named, and on so many mutations of
 * them, which are the same in every run.
 *
 * usage: fuzz-TARGET [-n MUTATIONS] FILE|DIRECTORY... */
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

#define MOST_SEEDS 1024
#define MOST_BYTES 16384

struct seed {
    uint8_t *data;
    size_t size;
};

static struct seed seeds[MOST_SEEDS];
static size_t nseeds;
static uint64_t state = 1;

static uint64_t random_below(uint64_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % limit;
}

static int run_file(const char *path)
{
    struct seed seed = {calloc(1, MOST_BYTES), 0};
    FILE *file = fopen(path, "rb");
    if (!file || !seed.data || nseeds == MOST_SEEDS) {
        printf("cannot take %s: %s\n", path, strerror(errno));
        return 1;
    }
    seed.size = fread(seed.data, 1, MOST_BYTES, file);
    fclose(file);
    seeds[nseeds++] = seed;
    fprintf(stderr, "%s\n", path);
    LLVMFuzzerTestOneInput(seed.data, seed.size);
    return 0;
}

static int run_path(const char *path)
{
    struct dirent **entries;
    struct stat status;
    int bad = 0;
    if (stat(path, &status) || !S_ISDIR(status.st_mode))
        return run_file(path);
    int count = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char full[4096];
        snprintf(full, sizeof full, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.')
            bad |= run_file(full);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return bad;
}

/* Changes a few bytes, cuts or repeats a piece, or splices in one of another seed. */
static size_t mutate(uint8_t *data, size_t size)
{
    for (uint64_t turn = 1 + random_below(6); turn; turn--) {
        size_t at = random_below(size + 1), length = random_below(size - at + 1);
        const struct seed *other = &seeds[random_below(nseeds)];
        switch (random_below(5)) {
        case 0:
            if (at < size)
                data[at] = (uint8_t)random_below(256);
            break;
        case 1:
            if (at < size)
                data[at] ^= (uint8_t)(1u << random_below(8));
            break;
        case 2: /* cut out */
            length = length % 64;
            memmove(data + at, data + at + length, size - at - length);
            size -= length;
            break;
        case 3: /* repeat */
            if (size + length <= MOST_BYTES) {
                memmove(data + at + length, data + at, size - at);
                size += length;
            }
            break;
        default: /* splice */
            length = random_below(other->size + 1);
            if (at + length > MOST_BYTES)
                length = MOST_BYTES - at;
            memcpy(data + at, other->data, length);
            if (size < at + length)
                size = at + length;
        }
    }
    return size;
}

static void run_mutations(unsigned long count)
{
    static uint8_t work[MOST_BYTES];
    while (nseeds && count--) {
        const struct seed *seed = &seeds[random_below(nseeds)];
        memcpy(work, seed->data, seed->size);
        size_t size = mutate(work, seed->size);
        uint8_t *exact = malloc(size ? size : 1); /* its end is where reading must end */
        if (!exact)
            return;
        memcpy(exact, work, size);
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
    }
}

int main(int argc, char **argv)
{
    unsigned long mutations = 0;
    int option, bad = 0;
    while ((option = getopt(argc, argv, "n:")) == 'n')
        mutations = strtoul(optarg, NULL, 10);
    if (option != -1)
        return 2;
    for (int first = optind; first < argc; first++)
        bad |= run_path(argv[first]);
    run_mutations(mutations);
    fprintf(stderr, "%zu seeds, %lu mutations\n", nseeds, mutations);
    for (size_t i = 0; i < nseeds; i++)
        free(seeds[i].data);
    return bad || !nseeds;
}
