/* A program that does something to its files or to itself while it is recorded: `files HOW [PLACE]`. What it wrote
 * into files of its own is checked at the end. */
#define _GNU_SOURCE
#include "gpu.h"
#include <sys/resource.h>
#include <sys/stat.h>

#define OWN_FILES 64
#define PATTERN "0123456789abcdef"

static int own[OWN_FILES];
static const char *place = ".";

static void own_name(char *name, size_t size, int i) { snprintf(name, size, "%s/own-%d", place, i); }

/* Opens files of its own, with the lowest free descriptors. */
static void open_own(void) {
  for (int i = 0; i < OWN_FILES; i++) {
    char name[4096];
    own_name(name, sizeof name, i);
    own[i] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    gpu_check(own[i] < 0 ? errno : 0, "open");
  }
}

static void write_own(void) {
  for (int i = 0; i < OWN_FILES; i++)
    if (write(own[i], PATTERN, sizeof PATTERN - 1) != sizeof PATTERN - 1) gpu_check(errno, "write");
}

/* Each of them holds what was written, nothing else, and its descriptor is still that file's. */
static void check_own(int writes) {
  int wrong = 0;
  for (int i = 0; i < OWN_FILES; i++) {
    char name[4096], text[sizeof PATTERN] = "";
    struct stat by_name, by_descriptor;
    own_name(name, sizeof name, i);
    if (stat(name, &by_name) || fstat(own[i], &by_descriptor) || by_name.st_ino != by_descriptor.st_ino ||
        by_name.st_size != (off_t)(writes * (sizeof PATTERN - 1)))
      wrong++;
    for (int at = 0; at < writes; at++)
      if (pread(own[i], text, sizeof PATTERN - 1, at * (off_t)(sizeof PATTERN - 1)) < 0 || strcmp(text, PATTERN)) {
        wrong++;
        break;
      }
  }
  printf("own files: %d wrong\n", wrong);
  fflush(stdout);
}

int main(int count, char **arguments) {
  const char *how = count > 1 ? arguments[1] : "";
  if (count > 2) place = arguments[2];
#define IS(name) (strcmp(how, name) == 0)
  if (IS("closed-before")) {
    /* Descriptors 0 to 2 are free: whoever opens files gets them. */
    close(0);
    close(1);
    close(2);
  }
  if (IS("umask")) umask(0777);
  gpu_start();
  gpu_launch(100);
  gpu_check(gpu_synchronize(), "cuCtxSynchronize");
  /* Until the collector has opened what it opens. */
  usleep(300000);
  if (IS("closed-before")) {
    /* What comes out of these belongs to the program alone. */
    char name[4096];
    struct stat standard;
    snprintf(name, sizeof name, "%s/standard", place);
    int first = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int other = first; other < 2;) other = dup(first);
    for (int i = 0; i < 8; i++) {
      gpu_launch(100);
      usleep(300000);
    }
    /* Of the numbers that it got: the GPU's own files may have some, which one differs. */
    if (fstat(first, &standard) != 0) _exit(95);
    if (standard.st_size != 0) _exit(93);
    printf("first descriptor: %d\n", first);
    fflush(stdout);
    return 0;
  }
  if (IS("closefrom")) {
    int writes = 0;
    for (int round = 0; round < 8; round++) {
      closefrom(3);
      open_own();
      writes = 0;
      for (int again = 0; again < 3; again++) {
        gpu_launch(100);
        write_own();
        writes++;
        usleep(110000);
      }
      check_own(writes);
    }
  }
  if (IS("leave")) {
    /* Another folder, another root where that is allowed. */
    gpu_check(chdir("/"), "chdir");
    gpu_launch(100);
    usleep(1200000);
  }
  if (IS("chroot")) {
    gpu_check(chroot(place) ? errno : 0, "chroot");
    gpu_check(chdir("/"), "chdir");
    gpu_launch(100);
    usleep(1200000);
  }
  if (IS("setuid")) {
    gpu_check(setgid(65534) ? errno : 0, "setgid");
    gpu_check(setuid(65534) ? errno : 0, "setuid");
    gpu_launch(100);
    usleep(1200000);
    printf("user %d\n", (int)getuid());
  }
  if (IS("nofile")) {
    /* Every descriptor that the limit allows is the program's. */
    int opened = 0;
    struct rlimit limit = {40, 40};
    setrlimit(RLIMIT_NOFILE, &limit);
    closefrom(3);
    while (open("/dev/null", O_RDONLY) >= 0) opened++;
    gpu_launch(100);
    usleep(1200000);
    printf("opened %d\n", opened);
  }
  if (IS("fsize")) {
    struct rlimit limit = {1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int i = 0; i < 12; i++) {
      gpu_launch(300);
      usleep(110000);
    }
  }
  if (IS("wait") || IS("umask")) {
    for (int i = 0; i < 12; i++) {
      gpu_launch(300);
      usleep(110000);
    }
  }
  gpu_work("done", 100);
  return 0;
}
