/* A program with children: `forks HOW`. Called as `forks worker`, it is the child that others execute. */
#define _GNU_SOURCE
#include "gpu.h"
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;

/* Waits for a child and says how it ended, and that it did not take long to. */
static void wait_for(const char *who, pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) gpu_check(errno, "waitpid");
  printf("%s: %s %d\n", who, WIFEXITED(status) ? "status" : "signal",
         WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
  fflush(stdout);
}

static void execute(const char *program) {
  char *const words[] = {(char *)program, "worker", NULL};
  execv(program, words);
  _exit(92);
}

int main(int count, char **arguments) {
  const char *how = count > 1 ? arguments[1] : "";
  pid_t child;
#define IS(name) (strcmp(how, name) == 0)
  if (IS("worker")) {
    gpu_start();
    gpu_work("worker", 30);
    return 8;
  }
  if (IS("before")) {
    /* Both use the GPU, each on its own. */
    gpu_open();
    for (int i = 0; i < 2; i++) {
      if ((child = fork()) == 0) {
        gpu_start();
        gpu_work("child", 20);
        exit(i);
      }
      wait_for("child", child);
    }
  }
  if (IS("grandchildren")) {
    if ((child = fork()) == 0) {
      pid_t grandchild = fork();
      if (grandchild == 0) {
        gpu_start();
        gpu_work("grandchild", 10);
        exit(1);
      }
      wait_for("grandchild", grandchild);
      gpu_start();
      gpu_work("child", 20);
      exit(2);
    }
    wait_for("child", child);
  }
  gpu_start();
  gpu_work("parent", 100);
  nvtx_push("parent");
  nvtx_pop();
  if (IS("exit")) {
    if ((child = fork()) == 0) exit(3);
    wait_for("child", child);
  }
  if (IS("_exit")) {
    if ((child = fork()) == 0) _exit(4);
    wait_for("child", child);
  }
  if (IS("abort")) {
    if ((child = fork()) == 0) abort();
    wait_for("child", child);
  }
  if (IS("raw")) {
    /* A fork that libc's fork handlers know nothing of. */
    if ((child = (pid_t)syscall(SYS_fork)) == 0) {
      nvtx_push("child");
      nvtx_pop();
      exit(5);
    }
    wait_for("child", child);
  }
  if (IS("goes-on")) {
    /* A child that goes on calling what it inherited: CUDA answers what it likes, NVTX nothing. */
    if ((child = fork()) == 0) {
      gpu_init(0);
      for (int i = 0; i < 1000; i++) {
        nvtx_push("child");
        nvtx_pop();
      }
      sleep(2);
      exit(6);
    }
    wait_for("child", child);
  }
  if (IS("many")) {
    /* At many moments, while this process launches and the collector works. */
    pid_t children[50];
    for (int i = 0; i < 50; i++) {
      gpu_launch(20);
      for (int range = 0; range < 20; range++) {
        nvtx_push("range");
        nvtx_pop();
      }
      if ((children[i] = fork()) == 0) {
        nvtx_push("child");
        nvtx_pop();
        exit(i % 5);
      }
    }
    for (int i = 0; i < 50; i++) wait_for("child", children[i]);
  }
  if (IS("execute")) {
    if ((child = fork()) == 0) execute(arguments[0]);
    wait_for("worker", child);
  }
  if (IS("vfork")) {
    if ((child = vfork()) == 0) execute(arguments[0]);
    wait_for("worker", child);
  }
  if (IS("spawn")) {
    char *const words[] = {arguments[0], "worker", NULL};
    gpu_check(posix_spawn(&child, arguments[0], NULL, NULL, words, environ), "posix_spawn");
    wait_for("worker", child);
  }
  if (IS("system")) {
    char line[4200];
    snprintf(line, sizeof line, "'%s' worker", arguments[0]);
    printf("system: %d\n", WEXITSTATUS(system(line)));
  }
  if (IS("becomes")) {
    fflush(stdout);
    execute(arguments[0]);
  }
  gpu_work("parent again", 50);
  return 0;
}
