/* SPDX-License-Identifier: Apache-2.0 */
/* Up to 16 bytes of the user's buffers, of any alignment that the element type allows. */
#ifndef IPS_KERNELS_USER_H
#define IPS_KERNELS_USER_H

#include "kernels/mem.h"

/* A user's buffer and the widest access that its address allows (1 to 16 bytes). */
struct ips_buffer {
    char *base;
    uint32_t align;
    uint32_t element; /* bytes */
};

IPS_DEVICE struct ips_buffer ips_buffer_of(const void *base, uint32_t element)
{
    uintptr_t bits = (uintptr_t)base | 16;
    struct ips_buffer buffer = {(char *)base, (uint32_t)(bits & (~bits + 1)), element};
    return buffer;
}

/* One element at a time: misaligned buffers and the ends of messages. Out of line, so that
 * the kernels' loops stay small. */
IPS_DEVICE_CALL struct ips_v4 ips_load_elements(const char *from, uint32_t bytes,
                                                uint32_t element)
{
    uint64_t low = 0, high = 0;
    for (uint32_t at = 0; at < bytes; at += element) {
        uint64_t value;
        switch (element) {
        case 1:
            value = *(const uint8_t *)(from + at);
            break;
        case 2:
            value = *(const uint16_t *)(from + at);
            break;
        case 4:
            value = *(const uint32_t *)(from + at);
            break;
        default:
            value = *(const uint64_t *)(from + at);
        }
        if (at < 8)
            low |= value << 8 * at;
        else
            high |= value << 8 * (at - 8);
    }
    struct ips_v4 v = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high,
                       (uint32_t)(high >> 32)};
    return v;
}

IPS_DEVICE_CALL void ips_store_elements(char *to, struct ips_v4 v, uint32_t bytes,
                                        uint32_t element)
{
    uint64_t low = v.x | (uint64_t)v.y << 32, high = v.z | (uint64_t)v.w << 32;
    for (uint32_t at = 0; at < bytes; at += element) {
        uint64_t value = at < 8 ? low >> 8 * at : high >> 8 * (at - 8);
        switch (element) {
        case 1:
            *(uint8_t *)(to + at) = (uint8_t)value;
            break;
        case 2:
            *(uint16_t *)(to + at) = (uint16_t)value;
            break;
        case 4:
            *(uint32_t *)(to + at) = (uint32_t)value;
            break;
        default:
            *(uint64_t *)(to + at) = value;
        }
    }
}

/* `bytes` (0 to 16, whole elements) at `offset`, a multiple of 8; the rest reads as 0. */
IPS_DEVICE struct ips_v4 ips_load(struct ips_buffer buffer, uint64_t offset, uint32_t bytes)
{
    const char *from = buffer.base + offset;
    if (bytes == 16 && buffer.align == 16 && offset % 16 == 0)
        return *(const struct ips_v4 *)from;
    if (buffer.align >= 8 && bytes % 8 == 0) {
        uint64_t low = bytes >= 8 ? *(const uint64_t *)from : 0;
        uint64_t high = bytes == 16 ? *(const uint64_t *)(from + 8) : 0;
        struct ips_v4 v = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high,
                           (uint32_t)(high >> 32)};
        return v;
    }
    return ips_load_elements(from, bytes, buffer.element);
}

IPS_DEVICE void ips_store(struct ips_buffer buffer, uint64_t offset, struct ips_v4 v,
                          uint32_t bytes)
{
    char *to = buffer.base + offset;
    if (bytes == 16 && buffer.align == 16 && offset % 16 == 0) {
        *(struct ips_v4 *)to = v;
    } else if (buffer.align >= 8 && bytes % 8 == 0) {
        if (bytes >= 8)
            *(uint64_t *)to = v.x | (uint64_t)v.y << 32;
        if (bytes == 16)
            *(uint64_t *)(to + 8) = v.z | (uint64_t)v.w << 32;
    } else {
        ips_store_elements(to, v, bytes, buffer.element);
    }
}

#endif
