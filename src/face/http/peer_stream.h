#pragma once

// The options that Debian's libcpp-httplib is built with; they are part of its ABI.
#define CPPHTTPLIB_OPENSSL_SUPPORT
#define CPPHTTPLIB_ZLIB_SUPPORT
#define CPPHTTPLIB_BROTLI_SUPPORT
#include <httplib.h>

#include <string>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace tessera::face {

// A connection as httplib reads and writes it, for one request. Its "address" is the peer's user ID and its "port" the
// peer's process ID, from SO_PEERCRED; for a TCP socket both are empty. It ends the connection when the peer takes
// longer than `longest` to send the request, or to receive the answer, when the request is larger than any may be, or
// when `stop_fd` becomes readable. How long the daemon works on the answer does not count: a disk may be slow.
class PeerStream : public httplib::Stream {
 public:
  static constexpr Nanos kLongest = 10 * kSecond;
  PeerStream(UniqueFd socket, int stop_fd, Nanos longest = kLongest);

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* data, size_t size) override;
  ssize_t write(const char* data, size_t size) override;  // all of it, or -1
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_.Get(); }

  // The socket, for further use after the request was answered.
  UniqueFd Release() && { return std::move(socket_); }

 private:
  bool WaitFor(short events) const;

  static constexpr std::size_t kMostBytes = 128 << 10;  // of a request with its headers

  UniqueFd socket_;
  const int stop_fd_;
  const Nanos longest_;
  Nanos deadline_;        // for what is being read, or written
  bool answers_ = false;  // something was written
  std::size_t bytes_left_ = kMostBytes;
  char buffer_[4096];  // httplib reads its lines byte by byte
  std::size_t begin_ = 0, end_ = 0;
};

}  // namespace tessera::face
