# SPDX-License-Identifier: Apache-2.0
# cmake -D FILE=…_generated.h -P own_verifier.cmake: code that flatc generated verifies by core/base/verifier.h, which
# says why.
file(READ "${FILE}" code)
string(REPLACE "flatbuffers::Verifier &verifier" "::forebay::Verifier &verifier" mended "${code}")
# Nothing here begins with its own length.
string(REGEX REPLACE "inline bool VerifySizePrefixed[^}]*}\n" "" mended "${mended}")
if(mended STREQUAL code)
  message(FATAL_ERROR "${FILE}: flatc does not verify as it did: see core/base/verifier.h")
endif()
file(WRITE "${FILE}" "${mended}")
