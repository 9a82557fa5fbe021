/* SPDX-License-Identifier: Apache-2.0
 * libdatawarp: stages of files between a Forebay reservation and other file systems, asked for by the programs that
 * write them. Names and arguments are those that programs for Cray's burst buffers used; all words and code here are
 * Forebay's own.
 *
 * Unless said otherwise a call returns 0, or a negative error number: -EINVAL if an argument is wrong, if a path lies
 * in no reservation of the caller's, or if there is no such stage; -ETIMEDOUT if the manager was away for longer than
 * FOREBAY_DATAWARP_WAIT_SECONDS (60 without it); -ENODEV if there is no instance here. All calls may be made by any
 * thread at any time; one that is cancelled ends when its call is over. A stage belongs to the user who asked for it,
 * and goes on when the program ends.
 *
 * `dw_...` arguments are paths in a reservation ($DW_JOB_STRIPED, $DW_PERSISTENT_STRIPED_name); `pfs_...` are paths
 * anywhere else. A path has one stage at a time. docs/reference/libdatawarp.md has the details.
 */
#ifndef FOREBAY_DATAWARP_H
#define FOREBAY_DATAWARP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* When a stage-out happens. */
enum dw_stage_type {
  DW_STAGE_IMMEDIATE = 1,         /* now */
  DW_STAGE_AT_JOB_END = 2,        /* after the job, also if its script asks for no stage-out */
  DW_REVOKE_STAGE_AT_JOB_END = 3, /* not at the job's end, after all; the pfs path is NULL */
  DW_ACTIVATE_DEFERRED_STAGE = 4  /* what was to happen at the job's end happens now; the pfs path is NULL */
};

/* Begin to copy a file, what a directory has, or several files, and return at once. The copy appears under its name
 * when it is whole. -EBUSY: another stage of the same path is under way or kept. The same stage asked for again is no
 * error. -ENOENT: there is no such source. */
int dw_stage_file_in(const char* dw_file, const char* pfs_file);
int dw_stage_file_out(const char* dw_file, const char* pfs_file, enum dw_stage_type type);
int dw_stage_directory_in(const char* dw_dir, const char* pfs_dir);
int dw_stage_directory_out(const char* dw_dir, const char* pfs_dir, enum dw_stage_type type);
/* Lists end with NULL; each file keeps its last name. The first error ends the call; the files before it are staged. */
int dw_stage_list_in(const char* dw_dir, const char** pfs_list);
int dw_stage_list_out(const char** dw_list, const char* pfs_dir, enum dw_stage_type type);

/* How many files have been copied, are under way, wait for the job's end, and could not be copied. At least one of the
 * numbers is not 0. Of a directory, stages of what lies below it count as well. No pointer may be NULL. */
int dw_query_file_stage(const char* dw_file, int* complete, int* pending, int* deferred, int* failed);
int dw_query_directory_stage(const char* dw_dir, int* complete, int* pending, int* deferred, int* failed);
int dw_query_list_stage(const char** dw_list, int* complete, int* pending, int* deferred, int* failed);

/* Return when the stage is over: 0 if it succeeded, else why it failed. Signals do not interrupt them. -EDEADLK: the
 * stage waits for the end of this job. */
int dw_wait_file_stage(const char* dw_file);
int dw_wait_directory_stage(const char* dw_dir);
int dw_wait_list_stage(const char** dw_list);

/* End the stage, and return when it writes no more. A kept one is revoked; one that is over is no error. */
int dw_terminate_file_stage(const char* dw_file);
int dw_terminate_directory_stage(const char* dw_dir);
int dw_terminate_list_stage(const char** dw_list);

/* From now on at most so many of the caller's stages run side by side in this reservation. */
int dw_set_stage_concurrency(const char* dw_instance_path, unsigned int concurrent_stages);

/* The stages at or below a path that failed: open, read one after another, close. read returns -ENOENT after the last,
 * and -ERANGE, without going on, if the path and its final NUL are longer than path_size. */
typedef struct dw_failed_stage dw_failed_stage_t;
int dw_open_failed_stage(const char* dw_instance_path, dw_failed_stage_t** handle);
int dw_read_failed_stage(dw_failed_stage_t* handle, char* path, int path_size, int* ret_errno);
int dw_close_failed_stage(dw_failed_stage_t* handle);

/* A reservation lies on one server: width 1, index 0. What is set is checked, and has no effect. -ENODATA: the file
 * lies in no reservation of the caller's. */
int dw_get_stripe_configuration(int fd, int* stripe_size, int* stripe_width, int* starting_index);
int dw_set_stripe_configuration(int fd, int stripe_size, int stripe_width);

/* A copy of dw_root, for the caller to free: there is one metadata server. NULL without memory, or of NULL. */
char* dw_get_mds_path(const char* dw_root, uint64_t key);

/* A JSON text on the reservation of the path, for the caller to free; NULL, and the negative error in ecode. */
char* dw_get_accounting_data_json(const char* path, int* ecode);

/* Of a cache, which is not there: -EOPNOTSUPP. */
int dw_wait_sync_complete(int fd);

#ifdef __cplusplus
}
#endif

#endif
