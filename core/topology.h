/* SPDX-License-Identifier: Apache-2.0 */
/* Where the GPUs of a machine sit: the PCI bridges above each, its host bridge, NUMA node
 * and socket, and the links on the way. Read from a tree like /sys, any machine's; what
 * the tree does not say stays unknown. All but ips_topology_read* are pure functions of
 * the struct. Nothing here allocates. */
#ifndef IPS_CORE_TOPOLOGY_H
#define IPS_CORE_TOPOLOGY_H

#include <stddef.h>
#include <stdint.h>

#define IPS_TOPO_GPUS 64
#define IPS_TOPO_BRIDGES 512
#define IPS_TOPO_DEPTH 16 /* bridges above one GPU */
#define IPS_TOPO_UNKNOWN -1
#define IPS_ADDRESS_BYTES 24

/* One number for domain, bus, device and function, ordered as they are. A host bridge is
 * its domain and bus. */
typedef int64_t ips_address;
#define IPS_ADDRESS(domain, bus, device, function) \
    ((ips_address)(domain) << 16 | (bus) << 8 | (device) << 3 | (function))

struct ips_topo_link {
    unsigned mtps, width; /* megatransfers a second and lane, lanes; 0: unknown */
};

struct ips_topo_device {
    ips_address address;
    ips_address host;    /* its host bridge, or unknown */
    unsigned vendor, id; /* 0: unknown */
    struct ips_topo_link now, most;
    int numa, socket; /* or unknown */
    int parent;       /* the bridge above; -1: none, or the place is unknown */
    int upstream; /* a bridge: its switch, named by the upstream port; -1: root port */
};

struct ips_topology {
    unsigned gpus, bridges;
    unsigned left_out; /* GPUs beyond IPS_TOPO_GPUS */
    int listed;        /* the tree had a list of PCI devices at all */
    /* The GPUs in order of address as read, then from IPS_TOPO_GPUS on the bridges, each
     * after the one above it. */
    struct ips_topo_device device[IPS_TOPO_GPUS + IPS_TOPO_BRIDGES];
    /* NVLinks between two GPUs. The tree does not tell: whoever knows enters them. */
    unsigned char nvlinks[IPS_TOPO_GPUS][IPS_TOPO_GPUS];
};

/* How two GPUs reach each other, in the words of `nvidia-smi topo -m`. */
enum ips_pair_class {
    IPS_PAIR_LOC,     /* the same GPU */
    IPS_PAIR_PIX,     /* through one switch */
    IPS_PAIR_PXB,     /* through several switches, not the CPU */
    IPS_PAIR_PHB,     /* through one host bridge */
    IPS_PAIR_NODE,    /* through host bridges of one NUMA node */
    IPS_PAIR_SYS,     /* across NUMA nodes */
    IPS_PAIR_UNKNOWN, /* the place of one is not known */
};

enum ips_group_kind {
    IPS_GROUP_SOCKET,
    IPS_GROUP_NUMA,
    IPS_GROUP_HOST,
    IPS_GROUP_SWITCH
};

struct ips_topo_group {
    enum ips_group_kind kind;
    ips_address key;  /* socket, NUMA node (may be -1), host bridge or upstream port */
    uint64_t members; /* one bit a GPU */
};
#define IPS_TOPO_GROUPS (3 * IPS_TOPO_GPUS + IPS_TOPO_BRIDGES)

/* Reads the tree below the directory `root` (which stays open), as /sys is. Never follows
 * a link out of the tree, never waits on a file, and every count is bounded. A tree
 * without GPUs is a topology without GPUs. */
void ips_topology_read(int root, struct ips_topology *ret);
/* Likewise, but of these GPUs alone, as far as they are there (an unknown address is not):
 * for a caller in a hurry, who does not go through all devices of the machine. */
void ips_topology_read_gpus(int root, const ips_address *gpus, unsigned count,
                            struct ips_topology *ret);

/* Equal for devices of one socket; where that is unknown each NUMA node counts as one,
 * behind all sockets, and all devices of unknown node as one before those. */
#define IPS_NO_SOCKET (INT64_C(1) << 32)
int64_t ips_topology_socket(const struct ips_topo_device *device);

enum ips_pair_class ips_topology_class(const struct ips_topology *t, unsigned a,
                                       unsigned b);
/* The cell of the matrix, "NV4" where NVLinks are known; text[8], returned. */
const char *ips_topology_word(const struct ips_topology *t, unsigned a, unsigned b,
                              char *text);
const char *ips_pair_class_name(enum ips_pair_class pair);

/* The groups that have a GPU, by kind and then by the first GPU in them; a GPU whose
 * socket or host bridge is unknown is in no such group. Every switch above a GPU is one.
 * ret[IPS_TOPO_GROUPS]; returns how many. */
unsigned ips_topology_groups(const struct ips_topology *t, struct ips_topo_group *ret);

/* MB/s in one direction after line coding; 0: unknown. */
unsigned ips_link_rate(struct ips_topo_link link);
/* The device whose link is the slowest known one from the GPU up to the CPU, the GPU
 * itself where several are; -1: none is known. `most`: by what the links can do, not what
 * they do now. */
int ips_topology_slowest(const struct ips_topology *t, unsigned gpu, int most);

/* "0000:0c:00.0" or, of a host bridge, "pci0000:0c", into text[IPS_ADDRESS_BYTES]. */
const char *ips_address_text(ips_address address, char *text);
const char *ips_host_text(ips_address host, char *text);
/* The reverse, of a whole text. 0, or -1. */
int ips_address_parse(const char *text, ips_address *ret);
int ips_host_parse(const char *text, ips_address *ret);

#endif
