export LST_SESSION=$$
lst new_session rw
lst add_group servers 10.0.0.[8,10,12-16]@tcp
lst add_group readers 10.0.1.[1-253/2]@tcp
lst add_group writers 10.0.1.[2-254/2]@tcp
lst add_batch bulk_rw
lst add_test --batch bulk_rw --concurrency 8 --from readers --to servers brw read  check=simple size=1M
lst add_test --batch bulk_rw --concurrency 8 --from writers --to servers brw write check=full   size=4K
lst run bulk_rw
lst stat servers & sleep 30; kill $!
lst end_session
