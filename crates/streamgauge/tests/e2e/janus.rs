//! Configuration of Janus for tests that start it themselves.

use std::fs;
use std::path::Path;

/// Transport of the API of Janus.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Over {
    /// Port 8088.
    Http,
    /// Port 8188.
    WebSockets,
}

/// Plug-ins that no test needs. Janus loads every installed plug-in that is not disabled.
const PLUGINS: [&str; 11] = [
    "audiobridge",
    "duktape",
    "echotest",
    "lua",
    "nosip",
    "recordplay",
    "sip",
    "streaming",
    "textroom",
    "videocall",
    "voicemail",
];

fn libraries<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names = names.into_iter().map(|name| format!("libjanus_{name}.so"));
    names.collect::<Vec<_>>().join(",")
}

/// Writes the files of configuration for a Janus that offers media at this address only.
pub(crate) fn configure(folder: &Path, address: &str, over: Over) {
    let (other, transport, api) = match over {
        Over::Http => (
            "websockets",
            "http",
            "general: { json = \"plain\", base_path = \"/janus\", http = true, port = 8088, \
             https = false }\nadmin: { admin_http = false, admin_https = false }\n",
        ),
        Over::WebSockets => (
            "http",
            "websockets",
            "general: { json = \"plain\", ws = true, ws_port = 8188, wss = false }\n\
             admin: { admin_ws = false, admin_wss = false }\n",
        ),
    };
    let transports = libraries([other, "mqtt", "nanomsg", "pfunix", "rabbitmq"]);
    let janus = format!(
        "general: {{ debug_level = 3 }}
media: {{ rtp_port_range = \"20000-29999\" }}
nat: {{ ice_enforce_list = \"{address}\", ignore_mdns = true }}
plugins: {{ disable = \"{}\" }}
transports: {{ disable = \"{transports}\" }}
events: {{ broadcast = false }}
",
        libraries(PLUGINS)
    );
    let name = format!("janus.transport.{transport}.jcfg");
    for (name, text) in [("janus.jcfg", &*janus), (&name, api)] {
        fs::write(folder.join(name), text).expect("there is room");
    }
}
