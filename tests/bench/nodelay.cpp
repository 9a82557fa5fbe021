// SPDX-License-Identifier: Apache-2.0
// Preloaded into a peer: every TCP socket that connects or is accepted gets TCP_NODELAY, which ADIOS2's SST leaves off.
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace {

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

// On sockets of other kinds this fails and changes nothing.
void send_at_once(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int socket(int domain, int type, int protocol) {
  static const auto real = next<int (*)(int, int, int)>("socket");
  const int made = real(domain, type, protocol);
  if (made >= 0) send_at_once(made);
  return made;
}

extern "C" __attribute__((visibility("default"))) int accept(int listening, sockaddr* address, socklen_t* length) {
  static const auto real = next<int (*)(int, sockaddr*, socklen_t*)>("accept");
  const int accepted = real(listening, address, length);
  if (accepted >= 0) send_at_once(accepted);
  return accepted;
}

extern "C" __attribute__((visibility("default"))) int accept4(int listening, sockaddr* address, socklen_t* length,
                                                              int flags) {
  static const auto real = next<int (*)(int, sockaddr*, socklen_t*, int)>("accept4");
  const int accepted = real(listening, address, length, flags);
  if (accepted >= 0) send_at_once(accepted);
  return accepted;
}
