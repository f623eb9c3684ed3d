/* SPDX-License-Identifier: Apache-2.0 */
/* The table of settings, and the only reader of the environment. Invariant: whatever the
 * environment holds, every setting ends up in its documented range. */
#include "shim/settings_table.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>
#include <unistd.h>

#define MEMBER(member) \
    offsetof(struct ips_settings, member), sizeof(((struct ips_settings *)0)->member)
#define MAX_SIZE ((uint64_t)1 << 62)

const struct ips_setting ips_settings_table[] = {
    {"IPCSHIM_ENABLE", SWITCH, MEMBER(enable), 0, 1, NULL, 0,
     "1: AllReduce runs on the engine where all ranks of a communicator agree that it "
     "can. "
     "0: every call goes to NCCL, and is still traced. One rank with 0 switches its "
     "communicators off for all ranks."},
    {"IPCSHIM_ALGO", CHOICE, MEMBER(policy.algo), 0, 0, "auto|ring|oneshot|twoshot|hierarchical",
     -1,
     "The engine's algorithm, for all sizes up to IPCSHIM_MAX_BYTES, also where NCCL is "
     "faster; auto chooses by size. oneshot and twoshot have no Simple and use LL128 "
     "instead; hierarchical has only Simple, and takes halves for groups where the machine "
     "has none. Rank 0's value is used by all ranks."},
    {"IPCSHIM_PROTO", CHOICE, MEMBER(policy.proto), 0, 0, "auto|LL|LL128|Simple", -1,
     "The engine's wire protocol, likewise. Rank 0's value is used by all ranks."},
    {"IPCSHIM_MAX_BYTES", SIZE, MEMBER(policy.max_bytes), 0, MAX_SIZE, "auto", 0,
     "auto: the engine takes what was measured on this machine (`ipcshim tune`) to be faster "
     "than NCCL, or what is known to be (`ipcshim policy` shows it). A size: it takes every "
     "AllReduce up to it, and none beyond. Rank 0's value is used by all ranks."},
    {"IPCSHIM_MAX_CHANNELS", NUMBER, MEMBER(policy.max_channels), 1, IPS_MAX_CHANNELS,
     NULL, 0,
     "Most channels (thread blocks) of one AllReduce. Each has its own buffers, so fewer "
     "channels also need less device memory. Rank 0's value is used by all ranks."},
    {"IPCSHIM_TUNE_FILE", TEXT, MEMBER(tune_file), 0, 0, NULL, 0,
     "File that `ipcshim tune` has written, which rank 0 reads when it makes a communicator; "
     "one of another machine, driver or version is ignored. Not set: ipcshim/tune in "
     "$XDG_CACHE_HOME or ~/.cache. none: nothing is read."},
    {"IPCSHIM_VERDICT_FILE", TEXT, MEMBER(verdict_file), 0, 0, NULL, 0,
     "File that `ipcshim doctor --probe` has written, which rank 0 reads when it makes a "
     "communicator: a link that failed there is not used, and links that are all sound are not "
     "probed again. One of another start of the machine, driver or kernel command line is "
     "ignored. Not set: ipcshim/links in $XDG_CACHE_HOME or ~/.cache, or else "
     IPS_VERDICT_PLACE ". none: nothing is read."},
    {"IPCSHIM_LINKS", CHOICE, MEMBER(links_any), 0, 0, "pcie|any", 0,
     "pcie: the engine uses peer-to-peer only where NVML says that the GPUs have no NVLink "
     "and that peer access is in order, and leaves GPUs with NVLink to NCCL unless host "
     "memory was asked for. any: it also accepts NVLink and links that NVML can't judge, as "
     "long as the probe of the link passes."},
    {"IPCSHIM_TRANSPORT", CHOICE, MEMBER(transport), 0, 0, "auto|ipc|host", -1,
     "Through which memory the ranks reach each other. ipc: each other's GPU memory, by CUDA "
     "IPC (peer-to-peer). host: host memory in /dev/shm, 4 MB for each rank of each "
     "communicator, while half of it stays free for others. auto: ipc, and host where NCCL_P2P_DISABLE or NCCL_P2P_LEVEL forbids "
     "peer-to-peer, the GPUs do not have it, or the probe of a link fails. Rank 0's value is "
     "used by all ranks."},
    {"IPCSHIM_MEM_MAX", SIZE, MEMBER(mem_max_bytes), 0, MAX_SIZE, NULL, 0,
     "Device memory that the buffers of all communicators of one process may hold "
     "together; "
     "communicators beyond it go to NCCL."},
    {"IPCSHIM_REPORT_S", NUMBER, MEMBER(report_s), 1, 86400, NULL, 0,
     "Seconds after which an AllReduce that waits for a peer is reported on stderr, once: "
     "who waits for whom, in which call, and which rank is behind."},
    {"IPCSHIM_TIMEOUT_S", NUMBER, MEMBER(timeout_s), 0, 86400, NULL, 0,
     "Seconds after which such a wait fails the communicator on all its ranks "
     "(ncclRemoteError). 0: it waits for as long as NCCL would, for ever."},
    {"IPCSHIM_VERIFY", NUMBER, MEMBER(policy.verify), 0, 1000000000, NULL, 0,
     "N: every Nth AllReduce that the engine takes also runs on NCCL and is compared with "
     "its result, element by element; a difference is reported and fails the communicator "
     "on all its ranks. For finding out, not for every day: such a call takes longer than "
     "NCCL's and the engine's together, and 12 MB of device memory a communicator beside "
     "IPCSHIM_MEM_MAX. Of more than 4 MB a part is compared, each time another. Calls in "
     "groups, in captures and on non-blocking communicators are left out and not counted, "
     "so all ranks must make them alike. Rank 0's value is used by all ranks."},
    {"IPCSHIM_TRACE", TEXT, MEMBER(trace), 0, 0, NULL, 0,
     "File that gets one JSON line for every NCCL call. %p stands for the process id, %r "
     "for "
     "the rank. Lines are appended; events that come faster than they can be written are "
     "dropped and counted."},
    {"IPCSHIM_SUMMARY", SWITCH, MEMBER(summary), 0, 1, NULL, 0,
     "1: print a table of all calls by size and route on stderr when the process ends."},
    {"IPCSHIM_LOG", CHOICE, MEMBER(log_level), 0, 0, "error|warn|info|trace", 0,
     "What is printed on stderr. warn: only what needs attention. info: also which "
     "communicators the engine serves, and why not the others."},
    {"IPCSHIM_NCCL_LIB", TEXT, MEMBER(nccl_lib), 0, 0, NULL, 0,
     "Absolute path of the real libnccl.so.2, where the search does not find the right "
     "one. Nothing is loaded from a relative path."},
    {"IPCSHIM_HOOK_DLSYM", SWITCH, MEMBER(hook_dlsym), 0, 1, NULL, 0,
     "1: libipcshim-dlsym.so, preloaded after libipcshim.so, also leads the nccl names that "
     "a program looks up with dlsym in a library of its choice to the shim."},
};
const size_t ips_settings_count =
    sizeof ips_settings_table / sizeof ips_settings_table[0];

struct ips_settings ips_settings_defaults(void)
{
    return (struct ips_settings){
        .enable = 1,
        .transport = -1, /* auto */
        .log_level = 1, /* warn */
        .mem_max_bytes = 256 << 20,
        .report_s = 30,
        .policy = ips_policy_defaults,
    };
}

static void set_number(const struct ips_setting *setting, struct ips_settings *settings,
                       uint64_t value)
{
    char *member = (char *)settings + setting->offset;
    if (setting->bytes == 4) {
        uint32_t narrow = (uint32_t)value;
        memcpy(member, &narrow, 4);
    } else {
        memcpy(member, &value, 8);
    }
}

/* "65536", or with SIZE also "64K", "64k", "64KB", "64KiB", likewise M and G (powers of
 * 1024). 0, or -EINVAL. */
static int parse_number(const char *text, int size, uint64_t *ret)
{
    if (text[0] < '0' || text[0] > '9')
        return -EINVAL;
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno)
        return -EINVAL;
    if (size && *end) {
        const char *units = "KMG", *unit = strchr(units, *end & ~0x20);
        if (!unit || !*unit)
            return -EINVAL;
        int shift = 10 * (int)(unit - units + 1);
        if (value > UINT64_MAX >> shift)
            return -EINVAL;
        value <<= shift;
        end++;
        if (strcasecmp(end, "B") == 0 || strcasecmp(end, "iB") == 0)
            end += strlen(end);
    }
    if (*end)
        return -EINVAL;
    *ret = value;
    return 0;
}

/* Position of the text among "A|B|C", in any case of letters, or -1. */
static int find_choice(const char *choices, const char *text)
{
    size_t length = strlen(text);
    for (int at = 0; *choices; at++) {
        size_t width = strcspn(choices, "|");
        if (width == length && strncasecmp(choices, text, width) == 0)
            return at;
        choices += width + (choices[width] == '|');
    }
    return -1;
}

static int parse_value(const struct ips_setting *setting, const char *text,
                       struct ips_settings *settings)
{
    uint64_t value;
    switch (setting->kind) {
    case TEXT:
        memcpy((char *)settings + setting->offset, &text, sizeof text);
        return 0;
    case CHOICE: {
        int at = find_choice(setting->choices, text);
        if (at < 0)
            return -EINVAL;
        set_number(setting, settings, (uint64_t)(at + setting->first));
        return 0;
    }
    default:
        if (setting->choices && strcasecmp(text, setting->choices) == 0) {
            set_number(setting, settings, UINT64_MAX);
            return 0;
        }
        if (parse_number(text, setting->kind == SIZE, &value) < 0 ||
            value < setting->low || value > setting->high)
            return -EINVAL;
        set_number(setting, settings, value);
        return 0;
    }
}

/* The number of insertions, deletions and replacements between two names (Levenshtein).
 */
static unsigned edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 64 };
    unsigned row[LONGEST + 1];
    size_t width = strlen(b);
    if (width > LONGEST)
        return LONGEST;
    for (size_t i = 0; i <= width; i++)
        row[i] = (unsigned)i;
    for (unsigned line = 1; *a; a++, line++) {
        unsigned diagonal = row[0];
        row[0] = line;
        for (size_t i = 0; i < width; i++) {
            unsigned best = diagonal + (*a != b[i]);
            diagonal = row[i + 1];
            if (row[i] + 1 < best)
                best = row[i] + 1;
            if (diagonal + 1 < best)
                best = diagonal + 1;
            row[i + 1] = best;
        }
    }
    return row[width];
}

/* The one that begins with the name, if there is one, else the fewest edits away. */
static const struct ips_setting *nearest(const char *name)
{
    const struct ips_setting *best = &ips_settings_table[0];
    unsigned distance = ~0u;
    for (size_t i = 0; i < ips_settings_count; i++) {
        unsigned other = edit_distance(name, ips_settings_table[i].name);
        if (strncmp(ips_settings_table[i].name, name, strlen(name)) == 0)
            other = 0;
        if (other < distance) {
            distance = other;
            best = &ips_settings_table[i];
        }
    }
    return best;
}

static char *next_problem(struct ips_settings_problems *problems)
{
    return problems->count < IPS_SETTINGS_PROBLEMS ? problems->text[problems->count++]
                                                   : NULL;
}

static void complain_value(struct ips_settings_problems *problems,
                           const struct ips_setting *setting, const char *value)
{
    char range[64], used[64], *text = next_problem(problems);
    struct ips_settings standard = ips_settings_defaults();
    if (!text)
        return;
    ips_setting_format_range(setting, range, sizeof range);
    ips_setting_format(setting, &standard, used, sizeof used);
    snprintf(text, sizeof problems->text[0],
             "%s=%.60s is invalid (%s); the default, %s, is used", setting->name, value,
             range, used);
}

static void parse_one(const char *entry, struct ips_settings *settings,
                      struct ips_settings_problems *problems)
{
    char name[64];
    const char *equals = strchr(entry, '=');
    if (strncmp(entry, "IPCSHIM_", 8) != 0 || !equals)
        return;
    snprintf(name, sizeof name, "%.*s", (int)(equals - entry), entry);
    if (!equals[1])
        return; /* set to nothing: the default */
    for (size_t i = 0; i < ips_settings_count; i++) {
        if (strcmp(name, ips_settings_table[i].name) != 0)
            continue;
        if (parse_value(&ips_settings_table[i], equals + 1, settings) < 0)
            complain_value(problems, &ips_settings_table[i], equals + 1);
        return;
    }
    char *text = next_problem(problems);
    if (text)
        snprintf(text, sizeof problems->text[0],
                 "%s is unknown and ignored; did you mean %s?", name,
                 nearest(name)->name);
}

void ips_settings_parse(char *const *environment, struct ips_settings *ret,
                        struct ips_settings_problems *ret_problems)
{
    *ret = ips_settings_defaults();
    ret_problems->count = 0;
    for (; environment && *environment; environment++)
        parse_one(*environment, ret, ret_problems);
}

static int is_secure(void)
{
    return getauxval(AT_SECURE) != 0;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct ips_settings own;
static struct ips_settings_problems own_problems;

static void read_own(void)
{
    static char *const nothing[] = {NULL};
    int saved = errno;
    ips_settings_parse(is_secure() ? nothing : environ, &own, &own_problems);
    /* The environment's texts may be freed by a later setenv. */
    if (own.trace)
        own.trace = strdup(own.trace);
    if (own.nccl_lib)
        own.nccl_lib = strdup(own.nccl_lib);
    if (own.tune_file)
        own.tune_file = strdup(own.tune_file);
    if (own.verdict_file)
        own.verdict_file = strdup(own.verdict_file);
    errno = saved;
}

const struct ips_settings *ips_settings(void)
{
    pthread_once(&once, read_own);
    return &own;
}

const struct ips_settings_problems *ips_settings_problems(void)
{
    pthread_once(&once, read_own);
    return &own_problems;
}

/* The value of a variable, or NULL when it is not set, empty, or not to be read. */
static const char *variable(const char *name)
{
    const char *value = is_secure() ? NULL : getenv(name);
    return value && *value ? value : NULL;
}

const char *ips_settings_nccl_lib(void)
{
    return variable("IPCSHIM_NCCL_LIB");
}

/* `named`, or this user's file of that name. 0, or -1. */
static int place_of(const char *named, const char *name, char *ret, size_t room)
{
    const char *cache = variable("XDG_CACHE_HOME"), *home = variable("HOME");
    int length;
    if (is_secure() || (named && strcmp(named, "none") == 0))
        return -1;
    if (named)
        length = snprintf(ret, room, "%s", named);
    else if (cache && cache[0] == '/') /* a relative one is to be ignored, its standard says */
        length = snprintf(ret, room, "%s/ipcshim/%s", cache, name);
    else if (home && home[0] == '/')
        length = snprintf(ret, room, "%s/.cache/ipcshim/%s", home, name);
    else
        return -1;
    return length > 0 && (size_t)length < room ? 0 : -1;
}

int ips_settings_tune_file(const char *named, char *ret, size_t room)
{
    return place_of(named, "tune", ret, room);
}

int ips_settings_verdict_file(const char *named, int turn, char *ret, size_t room)
{
    if (turn == 0)
        return place_of(named, "links", ret, room);
    return named ? -1 : place_of(IPS_VERDICT_PLACE, NULL, ret, room);
}

int ips_settings_hook_dlsym(void)
{
    const char *value = variable("IPCSHIM_HOOK_DLSYM");
    return value && strcmp(value, "1") == 0;
}

int ips_settings_p2p_disabled(void)
{
    /* NCCL's own reading (graph/paths.cc, ncclGetLevel): the levels nearer than PIX allow
     * no P2P through a PCIe switch; old-style numbers: 0 is LOC. */
    static const char *const near[] = {"LOC", "NVL", "NVB", "C2C", "0"};
    const char *disable = variable("NCCL_P2P_DISABLE");
    if (disable && strtol(disable, NULL, 0) == 1)
        return 1;
    const char *level = variable("NCCL_P2P_LEVEL");
    for (size_t i = 0; level && i < sizeof near / sizeof near[0]; i++)
        if (strcmp(level, near[i]) == 0)
            return 1;
    return 0;
}

int ips_settings_constant_id(void)
{
    return variable("NCCL_COMM_ID") != NULL;
}

int ips_settings_blocking(int configured)
{
    const char *value = variable("NCCL_COMM_BLOCKING");
    if (!value)
        return configured;
    long number = strtol(value, NULL, 0);
    return number == 0 || number == 1 ? (int)number : configured;
}
