# SPDX-License-Identifier: Apache-2.0
# cmake -D FILE=…_generated.h -P verify_vectors.cmake: code that flatc generated verifies vectors by
# core/base/verified_vector.h, which says why.
file(READ "${FILE}" code)
string(REPLACE "verifier.VerifyVector(" "::forebay::verify_vector(verifier, " mended "${code}")
if(mended STREQUAL code)
  message(FATAL_ERROR "${FILE}: flatc does not verify vectors as it did: see core/base/verified_vector.h")
endif()
file(WRITE "${FILE}" "${mended}")
