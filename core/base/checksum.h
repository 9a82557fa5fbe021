// SPDX-License-Identifier: Apache-2.0
// CRC-32C, computed by ISA-L. Declared for users too: who holds a block's bytes can compare them with its checksum.
#pragma once

#include <forebay/checksum.h>
