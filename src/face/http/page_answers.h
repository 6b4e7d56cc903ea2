#pragma once

#include "face/http/peer_stream.h"

namespace tessera::face {

// Whether this is a request for a file of the page, which holds no data and is answered without the token.
bool IsForPage(const httplib::Request& request);

// Answers a GET with the file, or with 304 if the browser has it already; 404 if there is none of that name. The
// answer's headers allow the page its own files and the API, and nothing else. Any thread.
void AnswerWithPage(const httplib::Request& request, httplib::Response& response);

}  // namespace tessera::face
