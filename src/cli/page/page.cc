#include "cli/page/page.h"

#include <sys/random.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/page/relay.h"
#include "cli/terminal/output.h"
#include "client/api_client.h"

namespace tessera::cli {
namespace {

// 128 random bits.
Result<std::string> NewToken() {
  std::array<unsigned char, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return FailErrno("cannot get random numbers");
  std::string token;
  for (const unsigned char byte : bytes)
    for (const int digit : {byte >> 4, byte & 15}) token += "0123456789abcdef"[digit];
  return token;
}

}  // namespace

Result<int> ServePage(const Common& common, std::uint16_t port) {
  const client::ApiClient api(common.RunDirectory());
  if (auto healthy = api.Get("/healthz"); !healthy) return std::unexpected(healthy.error());
  const auto token = NewToken();
  if (!token) return std::unexpected(token.error());
  auto relay = Relay::Listen(port, *token, [&api]() -> Result<UniqueFd> {
    auto socket = api.Connect();
    if (socket || socket.error().code == ECONNREFUSED) return socket;
    return Fail(ECONNREFUSED, socket.error().message, socket.error().hint);
  });
  if (!relay) return std::unexpected(relay.error());
  const std::string port_text = std::to_string((*relay)->Port());
  const std::string address = "http://127.0.0.1:" + port_text + "/#token=" + *token;
  if (common.json) {
    PrintJson({{"address", address}});
  } else {
    Print("Open " + address +
          "\n\nIt works on this computer until this command ends (Ctrl-C). Anybody with this address has your rights.\n"
          "From another computer, first: ssh -L " +
          port_text + ":127.0.0.1:" + port_text + " THIS-COMPUTER\n");
  }
  std::fflush(stdout);
  auto served = (*relay)->Serve();
  if (!served) return std::unexpected(served.error());
  return 0;
}

}  // namespace tessera::cli
