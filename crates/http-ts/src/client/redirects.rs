//! Redirects, and the cookies that servers set along them.

use super::{Client, Failure};
use crate::metrics as m;
use kit::http1::{Head, Url};
use session::{ChannelId, Context, Output};

/// Maximum number of redirects in a row.
const MAX_REDIRECTS: usize = 5;

impl Client {
    pub(super) fn handle_redirect(&mut self, cx: &mut Context<'_>, head: &Head) {
        cx.recorder.add(m::REDIRECTS, 1);
        let addresses = self.describe_addresses();
        let status = head.status;
        let Some(location) = head.headers.get("Location") else {
            let detail = format!("{status} without a Location");
            return self.fail_at_server(cx, Failure::BadRedirect, &detail);
        };
        let url = match self.current_url.redirect(location) {
            Ok(url) => url,
            Err(error) => {
                let detail = format!("{status}: {error}");
                return self.fail_at_server(cx, Failure::BadRedirect, &detail);
            }
        };
        let own = self.visited.first().unwrap_or(&self.current_url).host();
        let reached = self.addresses.and_then(|(_, remote)| remote);
        let reached = reached.map(|remote| remote.ip());
        if let Err(why) = self.config.follow.check(own, reached, url.host()) {
            let detail = format!("{status} to {url}: {why}, {addresses}");
            return self.fail(cx, Failure::RedirectRefused, detail);
        }
        let set_cookies = self.cookies.store(&self.current_url, &head.headers);
        let before = std::mem::replace(&mut self.current_url, url);
        self.visited.push(before);
        if set_cookies && !self.has_configured_cookie() {
            self.visited_with_other_cookies = self.visited.len();
        }
        let alike = &self.visited[self.visited_with_other_cookies..];
        let is_current = |url: &Url| url.is_same_resource(&self.current_url);
        if alike.iter().any(is_current) {
            let all = self.visited.iter().chain([&self.current_url]);
            let chain: Vec<String> = all.map(|url| url.to_string()).collect();
            let (chain, cookies) = (chain.join(" to "), self.describe_cookies());
            let detail = format!("{status}: {chain}{cookies}, {addresses}");
            return self.fail(cx, Failure::RedirectLoop, detail);
        }
        if self.visited.len() > MAX_REDIRECTS {
            let detail = format!(
                "{status} to {} after {MAX_REDIRECTS} others{}, {addresses}",
                self.current_url,
                self.describe_cookies()
            );
            return self.fail(cx, Failure::TooManyRedirects, detail);
        }
        self.close_connection(cx);
        self.connect(cx);
    }

    /// Returns true if the configured `headers` contain `Cookie`, which replaces the server's
    /// cookies.
    fn has_configured_cookie(&self) -> bool {
        self.config.headers.contains("Cookie")
    }

    /// Describes the cookies that the server set along the redirects, for failure details.
    fn describe_cookies(&self) -> String {
        match (self.cookies.is_empty(), self.has_configured_cookie()) {
            (true, _) => String::new(),
            (false, true) => format!(
                "; the server set a cookie ({}), but `headers` give `Cookie`",
                self.cookies
            ),
            (false, false) => format!(
                "; the server set a cookie ({}), which the client sent back",
                self.cookies
            ),
        }
    }

    /// Closes the connection, or stops opening it. The next one has another channel number.
    pub(super) fn close_connection(&mut self, cx: &mut Context<'_>) {
        if std::mem::take(&mut self.open) {
            cx.out.push_back(Output::Close {
                channel: self.channel,
            });
        }
        self.channel = ChannelId(self.channel.0 + 1);
    }
}
