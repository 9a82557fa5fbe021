// SPDX-License-Identifier: Apache-2.0
// Pointers to private members: an explicit template instantiation may name them. A tag says which one is meant:
//
//   struct AccessIo {
//     using Type = adios2::core::IO* adios2::IO::*;
//     friend Type member_pointer(AccessIo);
//   };
//   template struct MemberAccess<AccessIo, &adios2::IO::m_IO>;
//   … io.*member_pointer(AccessIo{}) …
#pragma once

namespace forebay::engine {
namespace {  // that of the tags, where it is instantiated

template <class Tag, typename Tag::Type member>
struct MemberAccess {
  friend typename Tag::Type member_pointer(Tag) { return member; }
};

}  // namespace
}  // namespace forebay::engine
