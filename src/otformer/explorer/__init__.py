"""One page in which the aligning transformer runs live: JavaScript, style and data, put together by `page`."""
