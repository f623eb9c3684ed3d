/* SPDX-License-Identifier: Apache-2.0 */
/* What the ipcshim command's parts share: the subcommands, reading of options, and the
 * one way to fail. Every subcommand returns the process's exit status: 0 done, 1 the
 * thing that was run failed, 2 it was asked wrongly or could not start. */
#ifndef IPS_TOOLS_TOOL_H
#define IPS_TOOLS_TOOL_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TOOL_FAILED 1
#define TOOL_USAGE 2

int cmd_run(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_bench_rank(int argc, char **argv); /* hidden: one rank of a bench */
int cmd_bench_host_rank(int argc, char **argv); /* hidden: likewise, with --host */
int cmd_devices(int argc, char **argv);    /* hidden: what there is to run on */
int cmd_links_child(int argc, char **argv); /* hidden: measures for doctor --probe */
int cmd_links_veto(int argc, char **argv);  /* hidden: whether `run` forbids P2P */
int cmd_policy(int argc, char **argv);
int cmd_env(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_topo(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_tune(int argc, char **argv);
int cmd_tune_rank(int argc, char **argv); /* hidden: one rank of it */

/* Prints "ipcshim: MESSAGE" on stderr; returns TOOL_USAGE. */
int tool_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A file that is to be whole or not there: opened beside its path, below directories that are
 * made with `mode` as far as they are missing. Its name goes to ret_temporary[room]. NULL
 * after printing. */
FILE *tool_create(const char *path, unsigned mode, char *ret_temporary, size_t room);
/* Closes it, and puts it in its place, for everybody to read. 0, or -1 after printing. */
int tool_commit(FILE *out, const char *path, const char *temporary);

/* The candidate closest to `word` by edit distance, or NULL when none is close. */
const char *tool_nearest(const char *word, const char *const *candidates, size_t count);

/* "17", "64K", "16M", "1G" (powers of 1024). 0, or -1. */
int tool_parse_size(const char *text, uint64_t *ret);
/* A plain number within limits. 0, or -1. */
int tool_parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *ret);
/* Number of a type's, operation's or link's name; -1 when unknown. */
int tool_parse_type(const char *name);
int tool_parse_op(const char *name);
int tool_parse_link(const char *name);
/* "8 B", "4 KB", "16 MB" (powers of 1024) into text[16]; returns text. */
const char *tool_size_text(uint64_t bytes, char *text);

#endif
