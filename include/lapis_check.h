/* lapis_check.h: the check of crash images, started once and asked about image after image.
 *
 * `lapis crash --trace FILE --recover CMD` asks CMD whether an image that a power cut may leave is one to go on
 * from. A CMD that is run for each image takes a process and a shell for each; one whose main is
 *
 *     #define LAPIS_CHECK_IMPLEMENTATION
 *     #include "lapis_check.h"
 *
 *     static int check(void *image, uint64_t bytes, void *context) { ...; return 0; }
 *
 *     int main(int count, char **arguments) { return lapis_check(arguments[count - 1], NULL, check, NULL); }
 *
 * stays: lapis_check connects to where LAPIS_CHECKER in the environment says, and forks for each image. The child
 * maps the image, calls the check and ends with what it returns: 0 if the image is one to go on from, 1 to 125 if not
 * (or a signal: a crash of the check is a verdict, too). What it stores into the mapping nobody else sees. Started by
 * hand with the path of an image, the same program checks that one.
 *
 *     int lapis_check(path, address, check, context)
 *                               the exit code for main. `address` is where the image has to lie, or NULL if that
 *                               does not matter; see lapis_recorded_address
 *     void *lapis_recorded_address()
 *                               where the memory lay when the trace was recorded, NULL if that is not known: for
 *                               images that hold pointers. The recorded program has to have mapped it where a
 *                               check can, at a fixed address (0x200000000000, say), and not on its heap.
 *     void *lapis_map_image(path, address, &bytes)
 *                               maps an image privately; NULL and errno, EEXIST if something else lies there
 *
 * In the check, the environment says what was promised: LAPIS_ACKNOWLEDGED is the operation that was acknowledged
 * last, LAPIS_IN_FLIGHT those that were in flight, with commas between them; empty if there is none. Threads that run
 * before lapis_check are not there in the children. It takes Linux, C99 or C++11. The lines that go over the
 * socket, for other languages, are in crates/crash/src/recorded/checker.rs.
 */

#ifndef LAPIS_CHECK_H
#define LAPIS_CHECK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int (*lapis_check_function)(void *image, uint64_t bytes, void *context);

int lapis_check(const char *path, void *address, lapis_check_function check, void *context);
void *lapis_recorded_address(void);
void *lapis_map_image(const char *path, void *address, uint64_t *bytes);

#ifdef __cplusplus
}
#endif

#endif /* LAPIS_CHECK_H */

#if defined(LAPIS_CHECK_IMPLEMENTATION) && !defined(LAPIS_CHECK_IMPLEMENTED)
#define LAPIS_CHECK_IMPLEMENTED

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#else
/* With -std=c99 the C library keeps it to itself. */
int setenv(const char *name, const char *value, int overwrite);
#endif

void *lapis_recorded_address(void) {
    const char *text = getenv("LAPIS_BASE_ADDRESS");
    return (void *)(uintptr_t)(text == NULL ? 0 : strtoull(text, NULL, 16));
}

void *lapis_map_image(const char *path, void *address, uint64_t *bytes) {
    const int fixed_no_replace = 0x100000; /* MAP_FIXED_NOREPLACE */
    struct stat status;
    void *image = MAP_FAILED;
    int error, file = open(path, O_RDONLY);
    if (file < 0) {
        return NULL;
    }
    if (fstat(file, &status) == 0) {
        *bytes = (uint64_t)status.st_size;
        image = mmap(address, (size_t)status.st_size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | (address == NULL ? 0 : fixed_no_replace), file, 0);
    }
    error = errno;
    close(file);
    if (image != MAP_FAILED && address != NULL && image != address) {
        munmap(image, (size_t)status.st_size); /* a kernel that takes the address for a hint */
        image = MAP_FAILED;
        error = EEXIST;
    }
    errno = error;
    return image == MAP_FAILED ? NULL : image;
}

static int lapis_check_one_(const char *path, void *address, lapis_check_function check, void *context) {
    uint64_t bytes = 0;
    void *image = lapis_map_image(path, address, &bytes);
    if (image == NULL) {
        fprintf(stderr, "%s cannot be mapped at %p: %s\n", path, address, strerror(errno));
        return 2;
    }
    return check(image, bytes, context);
}

/* A line without its end; 0 at the end of all. Lapis waits for an answer before it says more. */
static int lapis_check_line_(int socket, char *line, size_t room) {
    size_t length = 0;
    while (length + 1 < room) {
        ssize_t got = read(socket, line + length, room - 1 - length);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return 0;
        }
        length += (size_t)got;
        if (line[length - 1] == '\n') {
            line[length - 1] = 0;
            return 1;
        }
    }
    return 0;
}

static int lapis_check_say_(int socket, const char *line) {
    return send(socket, line, strlen(line), 0x4000 /* MSG_NOSIGNAL */) == (ssize_t)strlen(line);
}

int lapis_check(const char *path, void *address, lapis_check_function check, void *context) {
    const char *where = getenv("LAPIS_CHECKER");
    struct sockaddr_un name;
    char line[5000], *acknowledged, *in_flight, *image;
    int connection;
    memset(&name, 0, sizeof name);
    name.sun_family = AF_UNIX;
    if (where == NULL || strlen(where) >= sizeof name.sun_path) {
        return lapis_check_one_(path, address, check, context);
    }
    memcpy(name.sun_path, where, strlen(where));
    connection = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connection < 0 || connect(connection, (struct sockaddr *)&name, sizeof name) != 0 ||
        !lapis_check_say_(connection, "lapis checker 1\n")) {
        return lapis_check_one_(path, address, check, context);
    }
    while (lapis_check_line_(connection, line, sizeof line)) {
        int status = 0;
        pid_t child;
        if (strncmp(line, "check ", 6) != 0) {
            return 2;
        }
        acknowledged = line + 6;
        in_flight = strchr(acknowledged, ' ');
        image = in_flight == NULL ? NULL : strchr(in_flight + 1, ' ');
        if (image == NULL) {
            return 2;
        }
        *in_flight++ = 0;
        *image++ = 0;
        fflush(NULL);
        child = fork();
        if (child == 0) {
            int code;
            close(connection);
            setenv("LAPIS_ACKNOWLEDGED", strcmp(acknowledged, "-") == 0 ? "" : acknowledged, 1);
            setenv("LAPIS_IN_FLIGHT", strcmp(in_flight, "-") == 0 ? "" : in_flight, 1);
            code = lapis_check_one_(image, address, check, context);
            fflush(NULL);
            _exit(code);
        }
        while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
        if (child < 0) {
            perror("fork");
            return 2;
        }
        if (WIFSIGNALED(status)) {
            sprintf(line, "signal %d\n", WTERMSIG(status));
        } else {
            sprintf(line, "exit %d\n", WEXITSTATUS(status));
        }
        if (!lapis_check_say_(connection, line)) {
            break;
        }
    }
    close(connection);
    return 0;
}

#ifdef __cplusplus
}
#endif

#endif /* LAPIS_CHECK_IMPLEMENTATION */
