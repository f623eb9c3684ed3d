/* SPDX-License-Identifier: Apache-2.0 */
/* Settings as text: values, ranges, differences, and the whole table. */
#include "shim/settings_table.h"

#include <string.h>

/* The value of a member; 4-byte members are signed. */
static int64_t get_number(const struct ips_setting *setting, const void *settings)
{
    const char *member = (const char *)settings + setting->offset;
    int32_t narrow;
    int64_t wide;
    if (setting->bytes == 4) {
        memcpy(&narrow, member, 4);
        return narrow;
    }
    memcpy(&wide, member, 8);
    return wide;
}

static void format_size(uint64_t bytes, char *text, size_t room)
{
    const char *units[] = {"", "K", "M", "G"};
    int unit = 0;
    while (unit < 3 && bytes && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, room, "%llu%s", (unsigned long long)bytes, units[unit]);
}

void ips_setting_format(const struct ips_setting *setting,
                        const struct ips_settings *settings, char *text, size_t room)
{
    if (setting->kind == TEXT) {
        snprintf(text, room, "not set");
        return;
    }
    int64_t value = get_number(setting, settings);
    if (setting->kind == SIZE && setting->choices && value == -1) {
        snprintf(text, room, "%s", setting->choices);
    } else if (setting->kind == SIZE) {
        format_size((uint64_t)value, text, room);
    } else if (setting->kind == CHOICE) {
        const char *choice = setting->choices;
        for (int64_t skip = value - setting->first; skip > 0 && *choice; skip--)
            choice += strcspn(choice, "|") + 1;
        snprintf(text, room, "%.*s", (int)strcspn(choice, "|"), choice);
    } else {
        snprintf(text, room, "%lld", (long long)value);
    }
}

void ips_setting_format_range(const struct ips_setting *setting, char *text, size_t room)
{
    switch (setting->kind) {
    case TEXT:
        snprintf(text, room, "a path");
        break;
    case SWITCH:
        snprintf(text, room, "0|1");
        break;
    case CHOICE:
        snprintf(text, room, "%s", setting->choices);
        break;
    case SIZE:
        snprintf(text, room, "%s%sbytes, or with K, M, G",
                 setting->choices ? setting->choices : "", setting->choices ? ", " : "");
        break;
    case NUMBER:
        snprintf(text, room, "%llu to %llu", (unsigned long long)setting->low,
                 (unsigned long long)setting->high);
        break;
    }
}

unsigned ips_settings_differ(const struct ips_policy_settings *mine,
                             const struct ips_policy_settings *agreed, char *ret_text,
                             size_t text_bytes)
{
    unsigned differences = 0;
    size_t used = 0;
    struct ips_settings a = {.policy = *mine}, b = {.policy = *agreed};
    ret_text[0] = 0;
    for (size_t i = 0; i < ips_settings_count; i++) {
        char here[32], there[32];
        if (ips_settings_table[i].offset < offsetof(struct ips_settings, policy) ||
            get_number(&ips_settings_table[i], &a) ==
                get_number(&ips_settings_table[i], &b))
            continue;
        ips_setting_format(&ips_settings_table[i], &a, here, sizeof here);
        ips_setting_format(&ips_settings_table[i], &b, there, sizeof there);
        differences++;
        if (used < text_bytes)
            used += (size_t)snprintf(ret_text + used, text_bytes - used,
                                     "%s%s (%s, not %s)", used ? ", " : "",
                                     ips_settings_table[i].name, there, here);
    }
    return differences;
}

/* The paragraph, broken into lines of at most 76 columns. */
static void print_wrapped(FILE *out, const char *text)
{
    while (*text) {
        size_t width = strlen(text);
        if (width > 76) {
            width = 76;
            while (width && text[width] != ' ')
                width--;
        }
        fprintf(out, "    %.*s\n", (int)width, text);
        text += width;
        while (*text == ' ')
            text++;
    }
}

/* "|" separates the columns of a Markdown table. */
static void print_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            fputc('\\', out);
        fputc(*text, out);
    }
}

void ips_settings_print(FILE *out, enum ips_settings_format format)
{
    struct ips_settings standard = ips_settings_defaults();
    if (format == IPS_SETTINGS_MARKDOWN)
        fprintf(out, "| variable | values | default | meaning |\n|---|---|---|---|\n");
    for (size_t i = 0; i < ips_settings_count; i++) {
        char range[64], value[64];
        ips_setting_format_range(&ips_settings_table[i], range, sizeof range);
        ips_setting_format(&ips_settings_table[i], &standard, value, sizeof value);
        if (format == IPS_SETTINGS_TEXT) {
            fprintf(out, "%s = %s   (default: %s)\n", ips_settings_table[i].name, range,
                    value);
            print_wrapped(out, ips_settings_table[i].doc);
            continue;
        }
        fprintf(out, "| `%s` | ", ips_settings_table[i].name);
        print_escaped(out, range);
        fprintf(out, " | %s | ", value);
        print_escaped(out, ips_settings_table[i].doc);
        fprintf(out, " |\n");
    }
}
