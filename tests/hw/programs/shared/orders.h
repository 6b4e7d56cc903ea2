/* A busy program and whoever watches it. It prints "ready PID" and what else it has to say, answers each line "count"
 * on standard input with "count N", the units of work that are known to be done, and ends with its input, when it
 * prints "done N right" or "done N WRONG". C and C++. */
#pragma once

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned long long orders_done;
static int orders_ended;

/* One unit of work is done. */
static inline void CountWork(unsigned long long units) { __atomic_fetch_add(&orders_done, units, __ATOMIC_RELAXED); }

static inline int OrderedToEnd(void) { return __atomic_load_n(&orders_ended, __ATOMIC_RELAXED); }

/* A word that the GPU counts in itself: what "count" then answers. */
static const volatile unsigned* orders_gpu_count;

static inline unsigned long long WorkDone(void) {
  if (orders_gpu_count) return *orders_gpu_count;
  return __atomic_load_n(&orders_done, __ATOMIC_RELAXED);
}

/* Answers orders beside "count"; may be NULL. Runs on the thread that reads. */
typedef void (*OtherOrder)(const char* line);
static OtherOrder orders_other;

static void* ReadOrders(void* unused) {
  (void)unused;
  char line[128];
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    if (strcmp(line, "count") == 0)
      printf("count %llu\n", WorkDone());
    else if (orders_other)
      orders_other(line);
    fflush(stdout);
  }
  __atomic_store_n(&orders_ended, 1, __ATOMIC_RELAXED);
  return NULL;
}

/* From here on orders are answered, by a thread of their own: also while the work stands still. */
static inline void TakeOrders(unsigned long long extra) {
  printf("ready %d %llu\n", (int)getpid(), extra);
  fflush(stdout);
  pthread_t reader;
  pthread_create(&reader, NULL, ReadOrders, NULL);
  pthread_detach(reader);
}

static inline int ReportDone(int right) {
  printf("done %llu %s\n", WorkDone(), right ? "right" : "WRONG");
  fflush(stdout);
  return right ? 0 : 1;
}

/* main of a program that is called with "limit MOST_BYTES" or "busy STEPS": `open` first, then what was asked for. */
static inline int LimitOrBusy(int argc, char** argv, void (*open)(void), int (*limit)(size_t), int (*busy)(uint32_t)) {
  if (argc < 3) return 2;
  open();
  if (strcmp(argv[1], "limit") == 0) return limit(strtoull(argv[2], NULL, 10));
  if (strcmp(argv[1], "busy") == 0) return busy((uint32_t)strtoul(argv[2], NULL, 10));
  return 2;
}
