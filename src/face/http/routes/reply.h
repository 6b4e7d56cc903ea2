// Answers of the API: JSON, and problems as of RFC 9457. Any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/result.h"
#include "face/http/peer_stream.h"
#include "face/text/json.h"

namespace tessera::face {

void Reply(httplib::Response& response, const nlohmann::json& body, int status = 200,
           const char* type = "application/json");

// The problem, with the status that belongs to the error's code, or another one.
void Refuse(httplib::Response& response, const Error& error);
void Refuse(httplib::Response& response, const Error& error, int status);

// Nothing but that it is done, or the problem.
void ReplyNothing(httplib::Response& response, const Result<void>& done);

// The reports as the list `name`, or the problem.
template <typename Report>
void ReplyList(httplib::Response& response, const char* name, const Result<std::vector<Report>>& reports,
               int status = 200) {
  if (!reports) return Refuse(response, reports.error());
  nlohmann::json list = nlohmann::json::array();
  for (const Report& report : *reports) list.push_back(ToJson(report));
  Reply(response, {{name, std::move(list)}}, status);
}

}  // namespace tessera::face
