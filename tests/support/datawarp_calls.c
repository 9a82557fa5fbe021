/* SPDX-License-Identifier: Apache-2.0
 * Makes one call of libdatawarp, as a C program does, and prints what it returns: datawarp_calls CALL [ARGUMENT...].
 * "null" is NULL. The tests compile it with `cc`. */
#include <datawarp.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *argument(int argc, char **argv, int at) {
  if (at >= argc || strcmp(argv[at], "null") == 0) return NULL;
  return argv[at];
}

static int number(int argc, char **argv, int at) { return at < argc ? atoi(argv[at]) : 0; }

struct work {
  const char *folder;
  const char *outside;
  int number;
  int result;
};

static void *stage_one(void *given) {
  struct work *work = given;
  char inside[4096], outside[4096];
  snprintf(inside, sizeof inside, "%s/file.%d", work->folder, work->number);
  snprintf(outside, sizeof outside, "%s/file.%d", work->outside, work->number);
  work->result = dw_stage_file_out(inside, outside, DW_STAGE_IMMEDIATE);
  if (work->result == 0) work->result = dw_wait_file_stage(inside);
  return NULL;
}

/* FOLDER OUTSIDE COUNT: as many threads, each with a file of its own. */
static int in_threads(int argc, char **argv) {
  const int count = number(argc, argv, 4);
  pthread_t *threads = calloc((size_t)count, sizeof *threads);
  struct work *works = calloc((size_t)count, sizeof *works);
  int result = 0;
  for (int at = 0; at < count; ++at) {
    works[at] = (struct work){argv[2], argv[3], at, 1};
    if (pthread_create(&threads[at], NULL, stage_one, &works[at]) != 0) return 2;
  }
  for (int at = 0; at < count; ++at) {
    pthread_join(threads[at], NULL);
    if (works[at].result != 0) result = works[at].result;
  }
  free(threads);
  free(works);
  return result;
}

struct cancelled {
  pthread_barrier_t is_cancelled;
  const char *inside;
  const char *outside;
  int result;
};

static void *stage_when_cancelled(void *given) {
  struct cancelled *work = given;
  pthread_barrier_wait(&work->is_cancelled); /* at which no thread goes */
  work->result = dw_stage_file_out(work->inside, work->outside, DW_STAGE_IMMEDIATE);
  if (work->result == 0) work->result = dw_wait_file_stage(work->inside);
  pthread_testcancel();
  return NULL;
}

/* FILE OUTSIDE: by a thread that is cancelled before its calls. They are whole, and the thread goes after them. */
static int in_cancelled_thread(int argc, char **argv) {
  struct cancelled work = {.inside = argument(argc, argv, 2), .outside = argument(argc, argv, 3), .result = 1};
  pthread_t thread;
  void *end = NULL;
  if (pthread_barrier_init(&work.is_cancelled, NULL, 2) != 0) return 2;
  if (pthread_create(&thread, NULL, stage_when_cancelled, &work) != 0) return 3;
  if (pthread_cancel(thread) != 0) return 4;
  pthread_barrier_wait(&work.is_cancelled);
  pthread_join(thread, &end);
  pthread_barrier_destroy(&work.is_cancelled);
  return end == PTHREAD_CANCELED ? work.result : 5;
}

static int query(const char *call, int argc, char **argv) {
  int counts[4] = {-1, -1, -1, -1};
  int result;
  if (strcmp(call, "query_file") == 0)
    result = dw_query_file_stage(argument(argc, argv, 2), &counts[0], &counts[1], &counts[2], &counts[3]);
  else if (strcmp(call, "query_list") == 0)
    result = dw_query_list_stage((const char **)argv + 2, &counts[0], &counts[1], &counts[2], &counts[3]);
  else
    result = dw_query_directory_stage(argument(argc, argv, 2), &counts[0], &counts[1], &counts[2], &counts[3]);
  if (result == 0) printf("%d %d %d %d ", counts[0], counts[1], counts[2], counts[3]);
  return result;
}

static int failed(int argc, char **argv) {
  dw_failed_stage_t *handle;
  char path[4096];
  int number_of_error;
  int result = dw_open_failed_stage(argument(argc, argv, 2), &handle);
  if (result != 0) return result;
  while ((result = dw_read_failed_stage(handle, path, sizeof path, &number_of_error)) == 0)
    printf("%s:%d ", path, number_of_error);
  if (dw_read_failed_stage(handle, path, 0, &number_of_error) != -22) return 3;
  return dw_close_failed_stage(handle) != 0 ? 2 : result;
}

static int stripes(int argc, char **argv) {
  int size, width, index, result;
  const int fd = open(argument(argc, argv, 2), O_RDONLY);
  result = dw_get_stripe_configuration(fd, &size, &width, &index);
  if (result == 0) {
    printf("%d %d %d ", size, width, index);
    result = dw_set_stripe_configuration(fd, size, width);
    if (dw_set_stripe_configuration(fd, 0, width) != -22) result = 2;
  }
  close(fd);
  return result;
}

static int run(int argc, char **argv) {
  const char *call = argv[1], *first = argument(argc, argv, 2), *second = argument(argc, argv, 3);
  const enum dw_stage_type type = (enum dw_stage_type)number(argc, argv, 4);
  if (strcmp(call, "file_in") == 0) return dw_stage_file_in(first, second);
  if (strcmp(call, "file_out") == 0) return dw_stage_file_out(first, second, type);
  if (strcmp(call, "directory_in") == 0) return dw_stage_directory_in(first, second);
  if (strcmp(call, "directory_out") == 0) return dw_stage_directory_out(first, second, type);
  if (strcmp(call, "list_in") == 0) return dw_stage_list_in(first, (const char **)argv + 3);
  if (strcmp(call, "list_out") == 0)
    return dw_stage_list_out((const char **)argv + 4, first, (enum dw_stage_type)number(argc, argv, 3));
  if (strncmp(call, "query_", 6) == 0) return query(call, argc, argv);
  if (strcmp(call, "wait_file") == 0) return dw_wait_file_stage(first);
  if (strcmp(call, "wait_directory") == 0) return dw_wait_directory_stage(first);
  if (strcmp(call, "wait_list") == 0) return dw_wait_list_stage((const char **)argv + 2);
  if (strcmp(call, "terminate_file") == 0) return dw_terminate_file_stage(first);
  if (strcmp(call, "terminate_directory") == 0) return dw_terminate_directory_stage(first);
  if (strcmp(call, "concurrency") == 0) return dw_set_stage_concurrency(first, (unsigned)number(argc, argv, 3));
  if (strcmp(call, "failed") == 0) return failed(argc, argv);
  if (strcmp(call, "stripes") == 0) return stripes(argc, argv);
  if (strcmp(call, "threads") == 0) return in_threads(argc, argv);
  if (strcmp(call, "cancelled") == 0) return in_cancelled_thread(argc, argv);
  if (strcmp(call, "accounting") == 0) {
    int error = 1;
    char *text = dw_get_accounting_data_json(first, &error);
    if (text != NULL) printf("%s ", text);
    free(text);
    return error;
  }
  if (strcmp(call, "nothing") == 0) {
    int one = 0;
    if (dw_query_file_stage("/x", NULL, &one, &one, &one) != -22) return 1;
    if (dw_open_failed_stage("/x", NULL) != -22 || dw_close_failed_stage(NULL) != -22) return 2;
    if (dw_get_stripe_configuration(-1, &one, &one, &one) != -9) return 3;
    if (dw_wait_sync_complete(0) != -95 || dw_get_mds_path(NULL, 0) != NULL) return 4;
    char *root = dw_get_mds_path("/root", 7);
    const int same = root != NULL && strcmp(root, "/root") == 0;
    free(root);
    return same ? 0 : 5;
  }
  return 99;
}

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  printf("%d\n", run(argc, argv));
  return 0;
}
