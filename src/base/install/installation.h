#pragma once

#include <string>

namespace tessera {

// The directories of this installation: <prefix>/bin and <prefix>/lib/tessera.
struct Installation {
  std::string prefix;  // absolute, without symbolic links

  // By the path of this program.
  static Installation Find();

  std::string Daemon() const { return prefix + "/bin/tesserad"; }
  std::string Libraries() const { return prefix + "/lib/tessera"; }
  std::string Shim() const { return Libraries() + "/libcuda.so.1"; }
  std::string SoftDriver() const { return Libraries() + "/soft/libcuda.so.1"; }
  std::string Tenant() const { return Libraries() + "/tessera-tenant"; }
  std::string Preload() const { return Libraries() + "/ld.so.preload"; }  // for containers
  std::string RequireGate() const { return Libraries() + "/tessera-require-gate"; }
  std::string ChannelTest() const { return Libraries() + "/tessera-channel-test"; }
};

}  // namespace tessera
