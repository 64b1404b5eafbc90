import orbweb as mw


class NewsSpider(mw.Spider):
    site = "http://127.0.0.1:7273"

    def start_requests(self):
        for page in range(1, 100):
            yield mw.Request(f"{self.site}/news?p={page}", callback=self.parse)

    def parse(self, request, response):
        for link in response.css("a.title"):
            yield response.follow(link, callback=self.parse_detail)

    def parse_detail(self, request, response):
        yield {"url": response.url, "title": response.css("h1::text").get()}


if __name__ == "__main__":
    NewsSpider().start()
