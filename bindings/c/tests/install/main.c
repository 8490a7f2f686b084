/* SPDX-License-Identifier: Apache-2.0 */
/* A program in C of somebody who has IOVerbs installed. */
#include <ioverbs.h>

#include <stdio.h>
#include <string.h>

int main(void) {
    iov_session *s = NULL;
    iov_workspace *w = NULL;
    iov_collection *c = NULL;
    char text[16] = "";
    size_t got = 0;
    int code = iov_open("mem:installed", NULL, &s);
    if (code == 0) {
        code = iov_workspace_create(s, "ws", NULL, &w);
    }
    if (code == 0) {
        code = iov_collection_create(NULL, w, NULL, "c", NULL, NULL, &c);
    }
    if (code == 0) {
        code = iov_write(NULL, c, 0, "stored and read", 15);
    }
    if (code == 0) {
        code = iov_read(NULL, c, 0, text, 15, &got);
    }
    if (code != 0 || got != 15) {
        fprintf(stderr, "%s %s\n", iov_strerror(code), iov_error_detail());
        return 1;
    }
    printf("%s: ioverbs %s\n", text, iov_version());
    iov_collection_close(NULL, c);
    iov_workspace_close(w);
    return iov_close(s) == 0 ? 0 : 1;
}
