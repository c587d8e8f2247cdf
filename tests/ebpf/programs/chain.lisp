;;; A call chain that a profile must show completely: main, outer, middle, inner, leaf.
;;;
;;; Saves itself as the image CORE, which a Lisp then maps and runs. At run time it writes the positions of its functions
;;; to CORE.names: address and size, in hexadecimal, and name.

(declaim (notinline leaf inner middle outer))
(defvar *sink* 0)

(defun leaf (rounds)
  (declare (type (unsigned-byte 32) rounds))
  (let ((state (logior rounds 1)))
    (declare (type (unsigned-byte 32) state))
    (dotimes (round rounds state)
      (setf state (logxor state (ash state -7) (logand #xffffffff (ash state 13)))))))

(defun inner (rounds)
  (1+ (leaf rounds)))

(defun middle (rounds)
  (let ((both (cons rounds rounds)))
    (+ (inner (car both)) (length (list both)))))

(defun outer (rounds)
  (let ((all 0))
    (dolist (each (list rounds rounds) all)
      (incf all (middle each)))))

(defun core ()
  (sb-ext:posix-getenv "CORE"))

(defun main ()
  (with-open-file (names (concatenate 'string (core) ".names") :direction :output)
    (dolist (name '(leaf inner middle outer main))
      (let ((code (sb-kernel:fun-code-header (symbol-function name))))
        (format names "~(~x ~x ~a~)~%"
                (sb-sys:sap-int (sb-kernel:code-instructions code))
                (sb-kernel:%code-text-size code)
                name))))
  (let ((end (+ 300 (get-universal-time))))
    (loop while (< (get-universal-time) end)
          do (dotimes (time 1000)
               (setf *sink* (outer 20000))))))

(save-lisp-and-die (core) :toplevel #'main)
