-- purpose: bound what the transaction of one batch may cost others: how long it waits for a row, how long it idles
-- guard: none
-- index: none
SELECT set_config('lock_timeout', '1s', true), set_config('idle_in_transaction_session_timeout', '5s', true)
