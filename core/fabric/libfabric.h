// SPDX-License-Identifier: Apache-2.0
// libfabric, loaded at run time: Forebay does not link it, and a program that does not use the fabric path never loads
// it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <forebay/result.h>

#include "fabric/rma_endpoint.h"

namespace forebay::fabric {

/// invalid_argument unless Forebay can use this provider: tcp, verbs, cxi or efa.
Result<void> check_provider(std::string_view provider);

/// "1.17" of the number that libfabric and greetings have.
std::string version_text(std::uint32_t version);

/// An EndpointMaker. Loads libfabric: the one that the process has, else $FOREBAY_LIBFABRIC, else the system's, else
/// the one in the Python package `mpich`. unsupported, with what was tried, if there is none or it does not have the
/// provider.
Result<OpenedEndpoint> open_libfabric_endpoint(const std::string& provider, const std::string& source);

}  // namespace forebay::fabric
