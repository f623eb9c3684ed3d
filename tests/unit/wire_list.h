/* SPDX-License-Identifier: Apache-2.0 */
/* Initializers, included into an array: sizes and offsets that C and C++ must agree on. */
#ifdef IPS_KERNELS_WIRE_H
#define ENTRY_SIZE(type) {#type, sizeof(struct type)}
#define ENTRY_AT(type, member) {#type "." #member, offsetof(struct type, member)}
ENTRY_SIZE(ips_word), ENTRY_SIZE(ips_channel), ENTRY_SIZE(ips_guard_keys),
    ENTRY_SIZE(ips_head), ENTRY_SIZE(ips_stuck), ENTRY_SIZE(ips_control),
    ENTRY_SIZE(ips_wrong),    ENTRY_SIZE(ips_allreduce_args), ENTRY_SIZE(ips_probe_args),
    ENTRY_SIZE(ips_verify_args), ENTRY_AT(ips_verify_args, nranks),
    ENTRY_AT(ips_control, wrong),
    ENTRY_AT(ips_channel, flag), ENTRY_AT(ips_channel, ll), ENTRY_AT(ips_channel, ll128),
    ENTRY_AT(ips_channel, simple), ENTRY_AT(ips_head, count),
    ENTRY_AT(ips_head, keys), ENTRY_SIZE(ips_mailbox),
    ENTRY_AT(ips_channel, inbox), ENTRY_AT(ips_allreduce_args, peer),
    ENTRY_AT(ips_control, stuck), ENTRY_AT(ips_control, probe_done),
    ENTRY_AT(ips_control, count), ENTRY_AT(ips_control, history),
    ENTRY_SIZE(ips_call), ENTRY_SIZE(ips_note), ENTRY_AT(ips_control, seen),
    ENTRY_AT(ips_control, looks), ENTRY_AT(ips_mailbox, history),
    ENTRY_AT(ips_allreduce_args, captured), ENTRY_AT(ips_head, looks),
    ENTRY_AT(ips_allreduce_args, element),
    ENTRY_AT(ips_probe_args, rank),
#undef ENTRY_SIZE
#undef ENTRY_AT
#endif
