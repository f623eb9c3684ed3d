/* SPDX-License-Identifier: Apache-2.0 */
/* Which calls the engine takes, and with which protocol, channels and threads. Everything
 * here is uniform across ranks by construction: its inputs are. */
#include "policy/policy.h"

#include <stddef.h>

const struct ips_policy_settings ips_policy_defaults = {
    .algo = IPS_ALGO_AUTO,
    .proto = IPS_PROTO_AUTO,
    .max_channels = 8,
    .ll_max_bytes = 64 << 10,
    .ll128_max_bytes = 1 << 20,
    .max_bytes = IPS_MAX_BYTES_AUTO,
    .verify = 0,
};

unsigned ips_type_bytes(int type)
{
    return ips_element_bytes(type);
}

/* How a protocol spreads a message over blocks: one more channel for every `channel_bytes`,
 * so that a block always has enough to move to be worth its launch. */
static const struct {
    uint64_t channel_bytes;
    unsigned threads;
} shapes[IPS_PROTOS] = {
    [IPS_LL] = {4 << 10, 256},
    [IPS_LL128] = {8 << 10, 256},
    [IPS_SIMPLE] = {64 << 10, 512},
};

static unsigned channels_for(enum ips_proto proto, uint64_t bytes, unsigned most)
{
    uint64_t wanted = (bytes + shapes[proto].channel_bytes - 1) / shapes[proto].channel_bytes;
    if (most > IPS_MAX_CHANNELS)
        most = IPS_MAX_CHANNELS;
    if (wanted > most)
        wanted = most;
    return wanted ? (unsigned)wanted : 1;
}

/* What was measured to be no slower than NCCL, eager and replayed (docs/results.md): two
 * ranks up to 4 KB. The ring's many hops do not yet win for more ranks. */
static uint64_t max_bytes(const struct ips_policy_settings *settings, unsigned ranks)
{
    if (settings->max_bytes != IPS_MAX_BYTES_AUTO)
        return settings->max_bytes;
    return ranks == 2 ? 4 << 10 : 0;
}

int ips_policy_takes_some(const struct ips_policy_settings *settings, unsigned ranks)
{
    return ranks >= IPS_MIN_RANKS && ranks <= IPS_MAX_RANKS &&
           max_bytes(settings, ranks) > 0;
}

/* Fewer hops while what they cost in bytes does not matter. */
static enum ips_algo algo_for(const struct ips_policy_settings *settings, unsigned ranks,
                              uint64_t bytes, enum ips_proto *proto)
{
    if (*proto == IPS_SIMPLE && settings->algo > IPS_RING)
        *proto = IPS_LL128;
    if (settings->algo >= 0 && settings->algo < IPS_ALGOS)
        return (enum ips_algo)settings->algo;
    if (*proto == IPS_SIMPLE)
        return IPS_RING;
    return bytes <= (256u << 10) / (ranks * ranks / 4) ? IPS_ONESHOT : IPS_TWOSHOT;
}

static struct ips_decision nccl(const char *reason)
{
    return (struct ips_decision){.route = IPS_ROUTE_NCCL, .reason = reason};
}

struct ips_decision ips_policy_decide(const struct ips_policy_settings *settings,
                                      unsigned ranks, uint64_t count, int type, int op)
{
    unsigned size = ips_type_bytes(type);
    if (ranks < IPS_MIN_RANKS)
        return nccl("a single rank");
    if (ranks > IPS_MAX_RANKS)
        return nccl("more than 8 ranks");
    if (!size)
        return nccl("type not taken by the engine");
    if (op < 0 || op >= IPS_OPS)
        return nccl("operation not taken by the engine");
    if (count > UINT64_MAX / 2 / size)
        return nccl("count out of range");
    uint64_t bytes = count * size;
    if (bytes > max_bytes(settings, ranks))
        return nccl(settings->max_bytes == IPS_MAX_BYTES_AUTO
                        ? "not shown to be faster here; IPCSHIM_MAX_BYTES takes it"
                        : "larger than IPCSHIM_MAX_BYTES");

    struct ips_decision decision = {.route = IPS_ROUTE_ENGINE};
    enum ips_proto proto = IPS_SIMPLE;
    if (settings->proto >= 0 && settings->proto < IPS_PROTOS) {
        proto = (enum ips_proto)settings->proto;
        decision.reason = "IPCSHIM_PROTO";
    } else if (bytes <= settings->ll_max_bytes) {
        proto = IPS_LL;
        decision.reason = "small: lowest latency";
    } else if (bytes <= settings->ll128_max_bytes) {
        proto = IPS_LL128;
        decision.reason = "medium: low latency, 94 % payload";
    } else {
        decision.reason = "large: full bandwidth";
    }
    enum ips_algo algo = algo_for(settings, ranks, bytes, &proto);
    decision.variant = (enum ips_variant)ips_variant_of((int)algo, (int)proto);
    decision.channels = channels_for(proto, bytes, settings->max_channels);
    decision.threads = shapes[proto].threads;
    return decision;
}
