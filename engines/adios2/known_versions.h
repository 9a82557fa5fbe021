/* SPDX-License-Identifier: Apache-2.0
 * The versions of ADIOS2 whose insides the tests have been run with. What relies on more than the promised interface
 * (the hook of `forebay run`, variable_facts.cpp) works with these alone. Also included from C. */
#pragma once

#include <string.h>

/* adios2_version_str is one of them, with or without a packager's fourth number ("2.12.1.1001"). */
static inline int forebay_knows_adios2(const char* version) {
  static const char* const known[] = {"2.12.1"};
  for (unsigned i = 0; i < sizeof known / sizeof known[0]; ++i) {
    const size_t length = strlen(known[i]);
    if (strncmp(version, known[i], length) == 0 && (version[length] == '\0' || version[length] == '.')) return 1;
  }
  return 0;
}
