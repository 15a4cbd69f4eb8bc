//! One line per kind of message, with unknown members, numbers that no float can hold, and every way to write a
//! letter.

pub struct Message {
    /// The request that `line` answers, which must be pending before.
    pub before: Option<&'static str>,
    pub line: &'static str,
}

const fn alone(line: &'static str) -> Message {
    Message { before: None, line }
}

const fn answer(before: &'static str, line: &'static str) -> Message {
    Message { before: Some(before), line }
}

/// From the server to the client.
pub const TO_CLIENT: &[Message] = &[
    answer(
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#,
        r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"x-vendor":{"deep":[1,{"a":null}]}},"serverInfo":{"name":"s","version":"1","title":"S","icons":[{"src":"data:,","sizes":["1x1"]}]},"instructions":"Read \"this\".\nTwice.","_meta":{"vendor/key":1}}}"#,
    ),
    answer(
        r#"{"jsonrpc":"2.0","id":"discover-1","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
        r#"{"jsonrpc":"2.0","id":"discover-1","result":{"supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{},"serverInfo":{"name":"s","version":"1"},"ttlMs":0,"cacheScope":"private"}}"#,
    ),
    answer(
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        r#"{ "jsonrpc" : "2.0" , "id" : 1 , "result" : { } }"#,
    ),
    answer(
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","arguments":{}}}"#,
        r#"{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"line\nbreak\ttab \u0000 \u001f \/ \\ \" \ud83d\ude00 😀 é é","annotations":{"audience":["user"],"priority":0.5,"lastModified":"2025-01-01T00:00:00Z"},"_meta":{}},{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"},{"type":"audio","data":"UklGRg==","mimeType":"audio/wav"},{"type":"resource_link","uri":"file:///a%20b","name":"a","size":9007199254740993},{"type":"resource","resource":{"uri":"x:y","blob":"AA==","mimeType":"a/b"}},{"type":"hologram","beam":[]}],"structuredContent":{"big":123456789012345678901234567890,"small":-0,"exact":1.10,"exponent":1E400,"tiny":1e-400,"nested":{"":{"":[]}}},"isError":false}}"#,
    ),
    answer(
        r#"{"jsonrpc":"2.0","id":9007199254740993,"method":"resources/list","params":{"cursor":"a"}}"#,
        r#"{"jsonrpc":"2.0","id":9007199254740993,"result":{"resources":[{"uri":"file:///x","name":"x","size":18446744073709551616}],"nextCursor":"b\u002b="}}"#,
    ),
    answer(
        r#"{"jsonrpc":"2.0","id":-5,"method":"resources/read","params":{"uri":"file:///x"}}"#,
        r#"{"jsonrpc":"2.0","id":-5,"result":{"contents":[{"uri":"file:///x","mimeType":"text/plain","text":"\u2028\u2029\ufeff"}],"futureMember":{"a":[true,false,null]}}}"#,
    ),
    answer(
        r#"{"jsonrpc":"2.0","id":"ü\u00fc","method":"prompts/get","params":{"name":"p","arguments":{"k":"v"}}}"#,
        r#"{"jsonrpc":"2.0","id":"ü\u00fc","result":{"description":"d","messages":[{"role":"user","content":{"type":"text","text":"hi"}}]}}"#,
    ),
    answer(
        r#"{"jsonrpc":"2.0","id":"","method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"b"}}}"#,
        r#"{"jsonrpc":"2.0","id":"","result":{"completion":{"values":["bc","bd"],"total":2,"hasMore":false}}}"#,
    ),
    answer(
        r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","arguments":{},"task":{"ttl":60000}}}"#,
        r#"{"jsonrpc":"2.0","id":3,"result":{"task":{"taskId":"786512e2","status":"working","createdAt":"2025-11-25T10:30:00Z","ttl":60000,"pollInterval":5000}}}"#,
    ),
    answer(
        r#"{"jsonrpc":"2.0","id":4,"method":"nothing/known","params":[1,2,3]}"#,
        r#"{"jsonrpc":"2.0","id":4,"error":{"code":-32601,"message":"no \u006d ethod","data":{"a":[1.0,1e2,1E+2],"b":"x"}}}"#,
    ),
    answer(
        r#"{"jsonrpc":"2.0","id":5,"method":"tasks/result","params":{"taskId":"786512e2"}}"#,
        r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32603,"message":""}}"#,
    ),
    alone(
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":12345678901234567890,"progress":0.1,"total":1.00,"message":"…"}}"#,
    ),
    alone(
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"alert","logger":"l","data":[{"any":"thing"},null]}}"#,
    ),
    alone(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#),
    alone(r#"{"jsonrpc":"2.0","method":"notifications/resources/list_changed","params":{}}"#),
    alone(r#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"_meta":{"a":1}}}"#),
    alone(r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///x"}}"#),
    alone(
        r#"{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"786512e2","status":"completed"}}"#,
    ),
    alone(
        r#"{"method":"notifications/vendor","params":{"z":1,"a":2,"m":{"y":[],"b":{}}},"jsonrpc":"2.0","extension":{"kept":true}}"#,
    ),
    alone(
        r#"{"jsonrpc":"2.0","id":"s-1","method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"q"}}],"maxTokens":100,"modelPreferences":{"hints":[{"name":"m"}],"costPriority":0.30},"tools":[{"name":"t","inputSchema":{"type":"object"}}],"metadata":{"a":{"b":1}}}}"#,
    ),
    alone(
        r#"{"jsonrpc":"2.0","id":"s-2","method":"elicitation/create","params":{"mode":"url","url":"https://e.example/?a=1&b=2","message":"m","elicitationId":"550e"}}"#,
    ),
    alone(r#"{"jsonrpc":"2.0","id":98765432109876543210,"method":"roots/list"}"#),
    alone(r#"{"jsonrpc":"2.0","id":"s-3","method":"vendor/ask","params":{"a":[[[[[[[[[[1]]]]]]]]]]}}"#),
];

/// From the client to the server.
pub const TO_SERVER: &[Message] = &[
    alone(
        r#"{"jsonrpc":"2.0","id":100,"method":"tools/call","params":{"name":"t","arguments":{"text":"\u0041\ud83d\ude00😀\/\\","big":123456789012345678901234567890,"float":1.10,"null":null,"list":[1,2.50,-0,1e5]},"_meta":{"progressToken":"p","vendor/x":[]},"futureMember":1},"alsoKept":{"a":1}}"#,
    ),
    alone(r#"{"jsonrpc":"2.0","id":101,"method":"tools/list","params":{"cursor":"x"}}"#),
    alone(
        r#"{ "id" : "a b" , "params" : { "uri" : "file:///x" } , "method" : "resources/subscribe" , "jsonrpc" : "2.0" }"#,
    ),
    alone(r#"{"jsonrpc":"2.0","id":102,"method":"resources/templates/list"}"#),
    alone(r#"{"jsonrpc":"2.0","id":103,"method":"logging/setLevel","params":{"level":"debug"}}"#),
    alone(r#"{"jsonrpc":"2.0","id":104,"method":"tasks/cancel","params":{"taskId":"x"}}"#),
    alone(
        r#"{"jsonrpc":"2.0","id":105,"method":"vendor/method","params":{"":"empty","ключ":"значение","a\"b":"quote"}}"#,
    ),
    alone(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
    alone(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":{"_meta":{}}}"#),
    alone(
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":50}}"#,
    ),
    alone(
        r#"{"jsonrpc":"2.0","method":"notifications/vendor/thing","params":{"deep":{"er":{"est":[{"x":1e308}]}}}}"#,
    ),
    answer(
        r#"{"jsonrpc":"2.0","id":"q-1","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}"#,
        r#"{"jsonrpc":"2.0","id":"q-1","result":{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"t","input":{"n":12345678901234567890}}],"model":"m","stopReason":"toolUse","futureMember":null}}"#,
    ),
    answer(
        r#"{"jsonrpc":"2.0","id":"q-2","method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}"#,
        r#"{"jsonrpc":"2.0","id":"q-2","result":{"action":"accept","content":{"name":"Zoë","age":30.0,"tags":["a"]}}}"#,
    ),
    answer(
        r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{"roots":[{"uri":"file:///home/a%20b","name":"a b","_meta":{}}]}}"#,
    ),
    answer(
        r#"{"jsonrpc":"2.0","id":8,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":8,"error":{"code":-1,"message":"user rejected","data":"x"}}"#,
    ),
];
