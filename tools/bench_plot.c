/* SPDX-License-Identifier: Apache-2.0 */
/* Runs ipcshim-plot, a program of its own because it is in Python, on a matrix's JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/bench_vs.h"
#include "tools/place.h"
#include "tools/tool.h"

int bench_plot(const char *json, const char *picture)
{
    const char *plot = place_plot();
    if (!plot)
        return TOOL_USAGE;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        unsetenv("LD_PRELOAD"); /* Python has nothing to do with the shim */
        if (json)
            execl(plot, plot, json, picture, (char *)NULL);
        else
            execl(plot, plot, "--can", (char *)NULL);
        tool_fail("cannot run %s (is there a python3?)", plot);
        _exit(TOOL_USAGE);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return tool_fail("%s did not end as it should", plot);
    return WEXITSTATUS(status);
}
